#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, MAX_WORD, ParamError, TakesBack, Words,
    params::{MAX_PERIOD, check_count, check_period, scale_count},
    whole,
};
use crate::domain::{Ask, Decision, Micros, time::format_duration};

/// What a window may count up to, so that it stays exact in a double.
const MAX_USED: u64 = 1 << 52;

/// `count` units in each window of length `period`.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedWindow {
    count: u64,
    period: Micros,
    charge_denied: bool,
    per_key_phase: bool,
}

/// What was used of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    start: Micros,
    used: u64,
}

impl FixedWindow {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a count outside 1 to 2^32 or a period outside 1 µs to the bound.
    pub fn new(
        count: u64,
        period: Micros,
        charge_denied: bool,
        per_key_phase: bool,
        bounds: &Bounds,
    ) -> Result<Self, ParamError> {
        check_count("count", count)?;
        check_period("period", period, bounds)?;
        Ok(Self { count, period, charge_denied, per_key_phase })
    }

    /// A limit as Envoy's protocol and its files have them: `count` units, 0 as well, in each window of a `period` from 1 µs
    /// to 366 days, whatever the service's own bound; aligned to the epoch.
    pub fn in_unit(count: u32, period: Micros, charge_denied: bool) -> Self {
        Self { count: count.into(), period: period.clamp(1, MAX_PERIOD), charge_denied, per_key_phase: false }
    }

    /// How long a window is.
    pub fn period(&self) -> Micros {
        self.period
    }

    /// The time until the window of this phase around `now` ends.
    pub fn until_end(&self, now: Micros, phase: Micros) -> Micros {
        self.period - (now - phase).rem_euclid(self.period)
    }

    /// The window to count in. While anything is used of the known one, that is it until its end: also before it begins
    /// (the clock stepped back), and also where the phase has changed since. Else it is the one around now.
    fn window(&self, state: Option<&Window>, ask: &Ask) -> Window {
        match state {
            Some(state) if state.used > 0 && state.start + self.period > ask.now => *state,
            _ => Window { start: ask.now + self.until_end(ask.now, ask.phase) - self.period, used: 0 },
        }
    }
}

impl Algorithm for FixedWindow {
    type State = Window;

    #[inline]
    fn step(&self, state: Option<&Window>, ask: &Ask) -> (Decision, Option<Window>) {
        let window = self.window(state, ask);
        let left = window.start + self.period - ask.now;
        let answer = |used: u64, allowed: bool, never: bool| {
            let (remaining, reset) = (self.count.saturating_sub(used), if used > 0 { left } else { 0 });
            match (allowed, never) {
                (true, _) => Decision::pass(self.count, remaining, reset),
                (false, true) => Decision::refuse(self.count, remaining, None, reset),
                (false, false) => Decision::refuse(self.count, remaining, Some(left), reset),
            }
        };
        let units = ask.cost.unsigned_abs();
        if ask.cost < 0 {
            let used = window.used.saturating_sub(units);
            return (answer(used, true, false), state.map(|_| Window { used, ..window }));
        }
        let allowed = window.used + units <= self.count;
        let charged = units > 0 && (allowed || self.charge_denied);
        let used = if charged { (window.used + units).min(MAX_USED) } else { window.used };
        (answer(used, allowed, units > self.count), charged.then_some(Window { used, ..window }))
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        if self.count == 0 {
            return Ok(self.clone());
        }
        let count = scale_count(self.count, factor, 1);
        check_count("count", count)?;
        Ok(Self { count, ..self.clone() })
    }

    fn describe(&self) -> String {
        let Self { count, period, charge_denied, per_key_phase } = self;
        let mut text = format!("{{ count: {count}, period: {}", format_duration(*period));
        for (name, set) in [("charge_denied", charge_denied), ("per_key_phase", per_key_phase)] {
            if *set {
                text.push_str(&format!(", {name}: true"));
            }
        }
        text + " }"
    }

    fn time_base(&self) -> String {
        self.period.to_string()
    }

    fn phase_period(&self) -> Option<Micros> {
        self.per_key_phase.then_some(self.period)
    }

    fn takes_back(&self) -> TakesBack {
        TakesBack::WithinPeriod(self.period)
    }

    fn charges_denied(&self) -> bool {
        self.charge_denied
    }

    fn sparing_denied(&self) -> Option<Self> {
        self.charge_denied.then(|| Self { charge_denied: false, ..self.clone() })
    }

    fn window(&self) -> Micros {
        self.period
    }

    fn lua_params(&self) -> Vec<f64> {
        vec![self.count as f64, self.period as f64, f64::from(u8::from(self.charge_denied))]
    }
}

impl Words for Window {
    fn words(&self) -> Vec<f64> {
        vec![self.start as f64, self.used as f64]
    }

    fn from_words(words: &[f64]) -> Option<Self> {
        let [start, used] = *words else { return None };
        let (start, used) = (whole(start, -MAX_WORD, MAX_WORD)?, whole(used, 0, MAX_USED as i64)?);
        Some(Self { start, used: used.unsigned_abs() })
    }
}
