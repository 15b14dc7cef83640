#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError, RateBound, Spent, UndoRule,
    fields::fields,
    kinds::{Flag, Length, Period, Units},
    params::CHARGES_DENIED,
    runs::Runs,
    sliding::Window,
};
use crate::domain::{Decision, Micros, StepInput, time::format_duration};

/// Maximum number of units in a window, as each may need its own time.
const MAX_COUNT: u64 = 10_000;

/// Number of bits for [`MAX_COUNT`]. Those above are enough for the microseconds of the longest period.
const BITS: u32 = 14;

fields! {
    pub(crate) struct Fields as proto::SlidingLog {
        count: Units<1, MAX_COUNT>,
        period: Period,
        min_interval: Length = 0,
        charge_denied: Flag = false,
    }
    examples [
        { count: 10, period: 10s },
        { count: 3, period: 10s },
        { count: 5, period: 10s, min_interval: 1s },
        { count: 5, period: 1s, charge_denied: true },
        { count: 7, period: 1m, min_interval: 1m, charge_denied: true },
        { count: 10000, period: 1s },
        { count: 1, period: 1us, min_interval: 1us },
        { count: 500, period: 31d },
        { count: 400, period: 30d, charge_denied: true },
        { count: 400, period: 29d },
    ]
}

/// `count` units in any span of length `period`, by the time of each unit.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingLog {
    fields: Fields,
    window: Window,
}

impl Algorithm for SlidingLog {
    type Fields = Fields;
    type State = Runs<BITS>;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let Fields { count, period, min_interval, charge_denied } = fields;
        if !(0..=period).contains(&min_interval) {
            let [period, interval] = [period, min_interval].map(format_duration);
            let reason = format!("min_interval must be 0 to the period, {period}, not {interval}");
            return Err(ParamError::new("min_interval", reason));
        }
        Ok(Self { fields, window: Window::new(count, MAX_COUNT, 1, period).with(min_interval, charge_denied) })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Self::State>, input: &StepInput) -> (Decision, Option<Self::State>) {
        self.window.step(state, input)
    }

    fn time_base(&self) -> String {
        self.fields.period.to_string()
    }

    fn charges_denied(&self) -> bool {
        self.fields.charge_denied
    }

    fn sparing_denied(&self) -> Option<Self> {
        let fields = Fields { charge_denied: false, ..self.fields };
        self.fields.charge_denied.then(|| Self { fields, window: self.window.with(fields.min_interval, false) })
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        match self.fields {
            Fields { charge_denied: true, .. } => Err(CHARGES_DENIED),
            Fields { min_interval: 1.., .. } => Err("its min_interval is between requests, not units"),
            _ => Ok(HoldAccuracy::Exact),
        }
    }

    fn charge(&self, state: Option<&Self::State>, spent: Spent, now: Micros, _: Micros) -> Option<Self::State> {
        self.window.charge(state, spent, now)
    }

    fn undo_rule(&self) -> UndoRule {
        UndoRule::ByMark
    }

    fn marks_max(&self) -> u64 {
        self.fields.count
    }

    fn rate_bound(&self) -> Option<RateBound> {
        let Fields { count, period, .. } = self.fields;
        Some(RateBound::Sliding { count, period })
    }

    fn reaches_rate_bound(&self) -> bool {
        self.fields.min_interval == 0 && !self.fields.charge_denied
    }

    fn window(&self) -> Micros {
        self.fields.period
    }

    fn lua_params(&self) -> Vec<f64> {
        self.window.lua_params()
    }
}
