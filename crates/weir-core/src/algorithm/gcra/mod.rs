#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, ParamError,
    params::{MAX_COUNT, check_count, check_period, check_span, scale_count},
    span::Rate,
    tat::{Meter, Tat},
};
use crate::domain::{Ask, Decision, Micros, time::format_duration};

/// `burst` + 1 units at once, then `count` per `period`, evenly.
#[derive(Clone, Debug, PartialEq)]
pub struct Gcra {
    burst: u64,
    count: u64,
    period: Micros,
    meter: Meter,
}

impl Gcra {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a burst over 2^32, a count outside 1 to 2^32, a period outside 1 µs to the bound, or a burst
    /// that this rate cannot express exactly.
    pub fn new(burst: u64, count: u64, period: Micros, bounds: &Bounds) -> Result<Self, ParamError> {
        if burst > MAX_COUNT {
            return Err(ParamError::new("burst", format!("burst is 0 to 2^32, not {burst}")));
        }
        check_count("count", count)?;
        check_period("period", period, bounds)?;
        let rate = Rate::new(count, period);
        check_span("burst", burst + 1, rate)?;
        Ok(Self { burst, count, period, meter: Meter::new(burst + 1, rate) })
    }
}

impl Algorithm for Gcra {
    type State = Tat;

    #[inline]
    fn step(&self, state: Option<&Tat>, ask: &Ask) -> (Decision, Option<Tat>) {
        self.meter.step(state, ask)
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let (burst, count) = (scale_count(self.burst, factor, 0), scale_count(self.count, factor, 1));
        Self::new(burst, count, self.period, &Bounds { max_period: self.period })
    }

    fn describe(&self) -> String {
        format!("{{ burst: {}, count: {}, period: {} }}", self.burst, self.count, format_duration(self.period))
    }

    fn window(&self) -> Micros {
        self.meter.depth.ceil()
    }

    fn lua_params(&self) -> Vec<f64> {
        self.meter.lua_params()
    }
}
