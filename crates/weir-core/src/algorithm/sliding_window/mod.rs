#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, EncodedState, HoldAccuracy, ParamError, Spent, UndoRule, aligned,
    fields::fields,
    kinds::{Period, Units},
    state::{moment, whole},
};
use crate::domain::{Decision, Micros, StepInput};

/// Maximum count: the product of two such counts stays exact in a double.
const MAX_COUNT: u64 = 1 << 26;

fields! {
    pub(crate) struct Fields as proto::SlidingWindow {
        count: Units<1, MAX_COUNT>,
        period: Period,
    }
    examples [
        { count: 10, period: 10s },
        { count: 100, period: 60s },
        { count: 3, period: 1s },
        { count: 7, period: 1m },
        { count: 5, period: 500ms },
        { count: 1, period: 1us },
        { count: 3000000, period: 1s },
        { count: 999983, period: 1d },
        { count: 67108864, period: 31d },
        { count: 500, period: 31d },
        { count: 400, period: 30d },
    ]
}

/// `count` units in any window of length `period`, estimated from the two aligned windows that it touches.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingWindow {
    fields: Fields,
}

/// The units used of an aligned window and of the one before it. If both are 0, the window has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    start: Micros,
    before: u32,
    used: u32,
}

/// Returns the time into a window at which the weight of the units `before` it is at most `headroom`: the least integer
/// `e` with `before * (period - e) / period <= headroom`, without that product.
fn weighs_at_most(headroom: u64, before: u64, period: Micros) -> Micros {
    let over = before.saturating_sub(headroom);
    if over == 0 {
        return 0;
    }
    let period = period.unsigned_abs();
    (over * (period / before) + (over * (period % before)).div_ceil(before)) as Micros
}

impl SlidingWindow {
    /// Returns the windows at `now`: the known ones until the later one ends, even before it begins (the clock
    /// stepped back).
    fn at(&self, state: Option<&Windows>, now: Micros) -> Windows {
        let start = aligned::start(now, self.fields.period, 0);
        match state {
            Some(state) if (state.before, state.used) != (0, 0) && state.start >= start => *state,
            Some(state) if start - state.start <= self.fields.period => Windows { start, before: state.used, used: 0 },
            _ => Windows { start, before: 0, used: 0 },
        }
    }

    /// Returns the weight of the previous window now, rounded up.
    fn weight(&self, windows: Windows, now: Micros) -> u64 {
        let left = (self.fields.period - (now - windows.start).max(0)).unsigned_abs();
        let (before, period) = (u64::from(windows.before), self.fields.period.unsigned_abs());
        match before.checked_mul(left) {
            Some(product) => product.div_ceil(period),
            None => (u128::from(before) * u128::from(left)).div_ceil(period.into()) as u64,
        }
    }

    fn remaining(&self, windows: Windows, now: Micros) -> u64 {
        self.fields.count.saturating_sub(u64::from(windows.used) + self.weight(windows, now))
    }

    fn reset_after(&self, windows: Windows, now: Micros) -> Micros {
        match windows {
            Windows { before: 0, used: 0, .. } => 0,
            Windows { used: 0, .. } => windows.start + self.fields.period - now,
            _ => windows.start + 2 * self.fields.period - now,
        }
    }

    fn pass(&self, windows: Windows, now: Micros) -> Decision {
        Decision::pass(self.fields.count, self.remaining(windows, now), self.reset_after(windows, now))
    }

    /// Returns the time from the start of the known window until `units` pass, or 0 if they already do before it;
    /// `None` if they never pass.
    fn passes_at(&self, units: u64, windows: Windows) -> Option<Micros> {
        match self.fields.count.checked_sub(u64::from(windows.used) + units) {
            Some(headroom) => Some(weighs_at_most(headroom, windows.before.into(), self.fields.period)),
            None => {
                let headroom = self.fields.count.checked_sub(units)?;
                Some(self.fields.period + weighs_at_most(headroom, windows.used.into(), self.fields.period))
            }
        }
    }
}

impl Algorithm for SlidingWindow {
    type Fields = Fields;
    type State = Windows;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        Ok(Self { fields })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Windows>, input: &StepInput) -> (Decision, Option<Windows>) {
        let now = input.now;
        let windows = self.at(state, now);
        let units = input.cost.unsigned_abs();
        if input.cost < 0 {
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            let used = windows.used.saturating_sub(units);
            let before = windows.before.saturating_sub(units - (windows.used - used));
            let windows = Windows { used, before, ..windows };
            return (self.pass(windows, now), state.map(|_| windows));
        }
        let passes_at = self.passes_at(units, windows);
        if passes_at.is_none_or(|at| at > (now - windows.start).max(0)) {
            let retry_after = passes_at.map(|at| windows.start + at - now);
            let (remaining, reset_after) = (self.remaining(windows, now), self.reset_after(windows, now));
            return (Decision::refuse(self.fields.count, remaining, retry_after, reset_after), None);
        }
        let windows = Windows { used: windows.used + units as u32, ..windows };
        (self.pass(windows, now), (units > 0).then_some(windows))
    }

    fn time_base(&self) -> String {
        self.fields.period.to_string()
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        Ok(HoldAccuracy::Exact)
    }

    fn charge(&self, state: Option<&Windows>, Spent { units, .. }: Spent, now: Micros, _: Micros) -> Option<Windows> {
        let windows = self.at(state, now);
        let used = (u64::from(windows.used) + units.min(MAX_COUNT)).min(MAX_COUNT) as u32;
        Some(Windows { used, ..windows })
    }

    fn undo_rule(&self) -> UndoRule {
        UndoRule::WithinPeriod(self.fields.period)
    }

    fn window(&self) -> Micros {
        self.fields.period
    }
}

impl EncodedState for Windows {
    fn encode(&self) -> Vec<f64> {
        vec![self.start as f64, f64::from(self.before), f64::from(self.used)]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [start, before, used] = *numbers else { return None };
        let units = |number| whole(number, 0, MAX_COUNT as i64).map(|units| units as u32);
        Some(Self { start: moment(start)?, before: units(before)?, used: units(used)? })
    }
}
