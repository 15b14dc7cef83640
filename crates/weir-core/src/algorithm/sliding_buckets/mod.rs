#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, ParamError, TakesBack,
    params::{check_count, check_period, scale_count},
    runs::Runs,
    sliding::Window,
};
use crate::domain::{Ask, Decision, Micros, time::format_duration};

/// Most buckets of a window.
pub const MAX_BUCKETS: i64 = 1_000;

/// The bits that hold the largest count. Those above are enough for the number of buckets.
const BITS: u32 = 33;

/// `count` units in any span of length `period`, counted by buckets of length `resolution`.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingBuckets {
    count: u64,
    period: Micros,
    resolution: Micros,
    window: Window,
}

impl SlidingBuckets {
    /// A limit with these parameters. The period need not be a multiple of the resolution.
    ///
    /// # Errors
    /// [`ParamError`] for a count outside 1 to 2^32, a period outside 1 µs to the bound, or a resolution that is longer than
    /// the period or makes over [`MAX_BUCKETS`] of it.
    pub fn new(count: u64, period: Micros, resolution: Micros, bounds: &Bounds) -> Result<Self, ParamError> {
        check_count("count", count)?;
        check_period("period", period, bounds)?;
        let least = (period + MAX_BUCKETS - 1) / MAX_BUCKETS;
        if !(least..=period).contains(&resolution) {
            let [least, most, resolution] = [least, period, resolution].map(format_duration);
            let reason =
                format!("resolution is {least} ({MAX_BUCKETS} buckets) to {most} (the period), not {resolution}");
            return Err(ParamError::new("resolution", reason));
        }
        // A bucket counts until all of it has left the window, as if all of it were spent at its end.
        let window = Window::new(count, resolution, period + resolution);
        Ok(Self { count, period, resolution, window })
    }
}

impl Algorithm for SlidingBuckets {
    type State = Runs<BITS>;

    #[inline]
    fn step(&self, state: Option<&Self::State>, ask: &Ask) -> (Decision, Option<Self::State>) {
        self.window.step(state, ask)
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let count = scale_count(self.count, factor, 1);
        Self::new(count, self.period, self.resolution, &Bounds { max_period: self.period })
    }

    fn describe(&self) -> String {
        let (period, resolution) = (format_duration(self.period), format_duration(self.resolution));
        format!("{{ count: {}, period: {period}, resolution: {resolution} }}", self.count)
    }

    fn time_base(&self) -> String {
        format!("{}/{}", self.period, self.resolution)
    }

    fn takes_back(&self) -> TakesBack {
        TakesBack::WithinPeriod(self.resolution)
    }

    fn window(&self) -> Micros {
        self.period
    }

    fn lua_params(&self) -> Vec<f64> {
        self.window.lua_params()
    }
}
