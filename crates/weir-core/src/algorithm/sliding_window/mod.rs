#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, MAX_WORD, ParamError, TakesBack, Words,
    params::{check_period, scale_count},
    whole,
};
use crate::domain::{Ask, Decision, Micros, time::format_duration};

/// Largest count: two such counts multiplied stay exact in a double.
const MAX_COUNT: u64 = 1 << 26;

/// `count` units in any window of length `period`, as far as the two aligned windows that it touches tell.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingWindow {
    count: u64,
    period: Micros,
}

/// What was used of an aligned window and of the one before it. Nothing of either: no window in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    start: Micros,
    before: u32,
    used: u32,
}

/// How long into a window it takes until at most `room` of the units `before` it weigh: the least whole `e` with
/// `before * (period - e) / period <= room`, without that product.
fn weighs_at_most(room: u64, before: u64, period: Micros) -> Micros {
    let over = before.saturating_sub(room);
    if over == 0 {
        return 0;
    }
    let period = period.unsigned_abs();
    (over * (period / before) + (over * (period % before)).div_ceil(before)) as Micros
}

impl SlidingWindow {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a count outside 1 to 2^26 or a period outside 1 µs to the bound.
    pub fn new(count: u64, period: Micros, bounds: &Bounds) -> Result<Self, ParamError> {
        check_count(count)?;
        check_period("period", period, bounds)?;
        Ok(Self { count, period })
    }

    /// The windows as they stand at `now`: those that are known while the later one is not over, also before it begins
    /// (the clock stepped back).
    fn at(&self, state: Option<&Windows>, now: Micros) -> Windows {
        let start = now - now.rem_euclid(self.period);
        match state {
            Some(state) if (state.before, state.used) != (0, 0) && state.start >= start => *state,
            Some(state) if start - state.start <= self.period => Windows { start, before: state.used, used: 0 },
            _ => Windows { start, before: 0, used: 0 },
        }
    }

    /// What the window before weighs now, rounded up.
    fn weight(&self, windows: Windows, now: Micros) -> u64 {
        let left = (self.period - (now - windows.start).max(0)).unsigned_abs();
        let (before, period) = (u64::from(windows.before), self.period.unsigned_abs());
        match before.checked_mul(left) {
            Some(product) => product.div_ceil(period),
            None => (u128::from(before) * u128::from(left)).div_ceil(period.into()) as u64,
        }
    }

    fn remaining(&self, windows: Windows, now: Micros) -> u64 {
        self.count.saturating_sub(u64::from(windows.used) + self.weight(windows, now))
    }

    fn reset_after(&self, windows: Windows, now: Micros) -> Micros {
        match windows {
            Windows { before: 0, used: 0, .. } => 0,
            Windows { used: 0, .. } => windows.start + self.period - now,
            _ => windows.start + 2 * self.period - now,
        }
    }

    fn pass(&self, windows: Windows, now: Micros) -> Decision {
        Decision::pass(self.count, self.remaining(windows, now), self.reset_after(windows, now))
    }

    /// How long after the start of the known window `units` pass; 0 also where they do so before it. `None`: never.
    fn passes_at(&self, units: u64, windows: Windows) -> Option<Micros> {
        match self.count.checked_sub(u64::from(windows.used) + units) {
            Some(room) => Some(weighs_at_most(room, windows.before.into(), self.period)),
            None => {
                let room = self.count.checked_sub(units)?;
                Some(self.period + weighs_at_most(room, windows.used.into(), self.period))
            }
        }
    }
}

impl Algorithm for SlidingWindow {
    type State = Windows;

    #[inline]
    fn step(&self, state: Option<&Windows>, ask: &Ask) -> (Decision, Option<Windows>) {
        let now = ask.now;
        let windows = self.at(state, now);
        let units = ask.cost.unsigned_abs();
        if ask.cost < 0 {
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
            return (Decision::refuse(self.count, remaining, retry_after, reset_after), None);
        }
        let windows = Windows { used: windows.used + units as u32, ..windows };
        (self.pass(windows, now), (units > 0).then_some(windows))
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let count = scale_count(self.count, factor, 1);
        check_count(count)?;
        Ok(Self { count, ..*self })
    }

    fn describe(&self) -> String {
        format!("{{ count: {}, period: {} }}", self.count, format_duration(self.period))
    }

    fn time_base(&self) -> String {
        self.period.to_string()
    }

    fn takes_back(&self) -> TakesBack {
        TakesBack::WithinPeriod(self.period)
    }

    fn window(&self) -> Micros {
        self.period
    }

    fn lua_params(&self) -> Vec<f64> {
        vec![self.count as f64, self.period as f64]
    }
}

fn check_count(count: u64) -> Result<(), ParamError> {
    if (1..=MAX_COUNT).contains(&count) {
        return Ok(());
    }
    Err(ParamError::new("count", format!("count is 1 to 2^26 for this algorithm, not {count}")))
}

impl Words for Windows {
    fn words(&self) -> Vec<f64> {
        vec![self.start as f64, f64::from(self.before), f64::from(self.used)]
    }

    fn from_words(words: &[f64]) -> Option<Self> {
        let [start, before, used] = *words else { return None };
        let units = |word| whole(word, 0, MAX_COUNT as i64).map(|units| units as u32);
        Some(Self { start: whole(start, -MAX_WORD, MAX_WORD)?, before: units(before)?, used: units(used)? })
    }
}
