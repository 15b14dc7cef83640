//! How much a key is asked for: a moving average.

use crate::domain::{Micros, ask::MAX_COST};

/// The time over which demand is averaged.
const AVERAGED_OVER: f64 = 100_000.0;

/// Units asked for in a microsecond, on average, recent ones counting most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Demand {
    rate: f64,
    at: Micros,
}

impl Demand {
    /// Counts units that were asked for since the last time.
    pub(super) fn count(&mut self, units: u64, now: Micros) {
        let passed = (now - self.at).max(0) as f64;
        self.rate = (self.rate * AVERAGED_OVER + units as f64) / (AVERAGED_OVER + passed);
        self.at = now;
    }

    /// Units that will be asked for within `time`, rounded down; at most as many as a renewal may want.
    pub(super) fn within(&self, time: Micros) -> u64 {
        ((self.rate * time as f64) as u64).min(MAX_COST.unsigned_abs())
    }
}
