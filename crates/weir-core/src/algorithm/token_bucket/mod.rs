#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, ParamError,
    params::{check_count, check_period, check_span, scale_count},
    span::Rate,
    tat::{Meter, Tat},
};
use crate::domain::{Ask, Decision, Micros, time::format_duration};

/// `capacity` units at once, refilled by `count` per `period`.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    capacity: u64,
    count: u64,
    period: Micros,
    meter: Meter,
}

impl TokenBucket {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a capacity or count outside 1 to 2^32, a period outside 1 µs to the bound, or a capacity that
    /// this rate cannot express exactly.
    pub fn new(capacity: u64, count: u64, period: Micros, bounds: &Bounds) -> Result<Self, ParamError> {
        check_count("capacity", capacity)?;
        check_count("count", count)?;
        check_period("period", period, bounds)?;
        let rate = Rate::new(count, period);
        check_span("capacity", capacity, rate)?;
        Ok(Self { capacity, count, period, meter: Meter::new(capacity, rate) })
    }
}

impl Algorithm for TokenBucket {
    type State = Tat;

    #[inline]
    fn step(&self, state: Option<&Tat>, ask: &Ask) -> (Decision, Option<Tat>) {
        self.meter.step(state, ask)
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let (capacity, count) = (scale_count(self.capacity, factor, 1), scale_count(self.count, factor, 1));
        Self::new(capacity, count, self.period, &Bounds { max_period: self.period })
    }

    fn describe(&self) -> String {
        format!("{{ capacity: {}, count: {}, period: {} }}", self.capacity, self.count, format_duration(self.period))
    }

    fn window(&self) -> Micros {
        self.meter.depth.ceil()
    }

    fn lua_params(&self) -> Vec<f64> {
        self.meter.lua_params()
    }
}
