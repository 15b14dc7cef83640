#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, ParamError, TakesBack,
    params::{check_period, scale_count},
    runs::Runs,
    sliding::Window,
};
use crate::domain::{Ask, Decision, Micros, time::format_duration};

/// Most units in a window, as each may need a time of its own.
pub const MAX_COUNT: u64 = 10_000;

/// The bits that hold [`MAX_COUNT`]. Those above are enough for the microseconds of the longest period.
const BITS: u32 = 14;

/// `count` units in any span of length `period`, by the time of each.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingLog {
    count: u64,
    period: Micros,
    min_interval: Micros,
    charge_denied: bool,
    window: Window,
}

impl SlidingLog {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a count outside 1 to [`MAX_COUNT`], a period outside 1 µs to the bound, or a least interval outside
    /// 0 to the period.
    pub fn new(
        count: u64,
        period: Micros,
        min_interval: Micros,
        charge_denied: bool,
        bounds: &Bounds,
    ) -> Result<Self, ParamError> {
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(ParamError::new("count", format!("count is 1 to {MAX_COUNT}, not {count}")));
        }
        check_period("period", period, bounds)?;
        if !(0..=period).contains(&min_interval) {
            let (period, interval) = (format_duration(period), format_duration(min_interval));
            let reason = format!("min_interval is 0 to the period, {period}, not {interval}");
            return Err(ParamError::new("min_interval", reason));
        }
        let window = Window::new(count, 1, period).with(min_interval, charge_denied);
        Ok(Self { count, period, min_interval, charge_denied, window })
    }
}

impl Algorithm for SlidingLog {
    type State = Runs<BITS>;

    #[inline]
    fn step(&self, state: Option<&Self::State>, ask: &Ask) -> (Decision, Option<Self::State>) {
        self.window.step(state, ask)
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let count = scale_count(self.count, factor, 1);
        Self::new(count, self.period, self.min_interval, self.charge_denied, &Bounds { max_period: self.period })
    }

    fn describe(&self) -> String {
        let mut text = format!("{{ count: {}, period: {}", self.count, format_duration(self.period));
        if self.min_interval > 0 {
            text.push_str(&format!(", min_interval: {}", format_duration(self.min_interval)));
        }
        if self.charge_denied {
            text.push_str(", charge_denied: true");
        }
        text + " }"
    }

    fn time_base(&self) -> String {
        self.period.to_string()
    }

    fn charges_denied(&self) -> bool {
        self.charge_denied
    }

    fn sparing_denied(&self) -> Option<Self> {
        let window = || Window::new(self.count, 1, self.period).with(self.min_interval, false);
        self.charge_denied.then(|| Self { charge_denied: false, window: window(), ..self.clone() })
    }

    fn takes_back(&self) -> TakesBack {
        TakesBack::Never
    }

    fn window(&self) -> Micros {
        self.period
    }

    fn lua_params(&self) -> Vec<f64> {
        self.window.lua_params()
    }
}
