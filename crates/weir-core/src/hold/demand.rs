//! The demand for a key: a moving average.

use crate::domain::{Micros, request::MAX_COST};

/// Time over which demand is averaged, in microseconds.
const AVERAGED_OVER: f64 = 100_000.0;

/// Average number of units requested per microsecond, weighted towards recent requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Demand {
    rate: f64,
    at: Micros,
}

impl Demand {
    /// Counts the units requested since the last call.
    pub(super) fn count(&mut self, units: u64, now: Micros) {
        let passed = (now - self.at).max(0) as f64;
        self.rate = (self.rate * AVERAGED_OVER + units as f64) / (AVERAGED_OVER + passed);
        self.at = now;
    }

    /// Returns the units expected within `time`, rounded down; at most as many as a renewal may want.
    pub(super) fn within(&self, time: Micros) -> u64 {
        ((self.rate * time as f64) as u64).min(MAX_COST.unsigned_abs())
    }
}
