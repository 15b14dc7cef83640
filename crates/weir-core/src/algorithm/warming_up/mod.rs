#![doc = include_str!("README.md")]

mod curve;
#[cfg(test)]
pub(crate) mod facts;
mod pace;
pub mod wire;

use self::{curve::Curve, pace::Pace};
use super::{
    Algorithm, Bounds, ParamError, TakesBack,
    params::{MAX_COUNT, MAX_DEPTH, check_count, check_max_wait, check_period, patience, scale_count},
    span::Rate,
};
use crate::domain::{
    Ask, Decision, Micros,
    ask::{MAX_COST, MAX_LEVELS},
    time::format_duration,
};

/// Most times that a cold start is slower.
pub const MAX_COLD_FACTOR: f64 = 1e6;

/// How many times slower a cold start is where nobody says.
pub const COLD_FACTOR: f64 = 3.0;

/// Most units of one decision: several levels of a request may be one state, which is asked for what they ask together.
const MOST_ASKED: u64 = MAX_COST as u64 * MAX_LEVELS as u64;

/// `count` per `period`, evenly, and slower after a rest.
#[derive(Clone, Debug, PartialEq)]
pub struct WarmingUp {
    count: u64,
    period: Micros,
    warm_up: Micros,
    cold_factor: f64,
    max_wait: Option<Micros>,
    curve: Curve,
    /// The most that may be asked for at once.
    most: u64,
}

impl WarmingUp {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a count outside 1 to 2^32, a period or warm-up outside 1 µs to the bound, a cold factor that is not
    /// above 1 and at most [`MAX_COLD_FACTOR`], a wait over a day, or a warm-up in which over 2^32 units are stored.
    pub fn new(
        count: u64,
        period: Micros,
        warm_up: Micros,
        cold_factor: f64,
        max_wait: Option<Micros>,
        bounds: &Bounds,
    ) -> Result<Self, ParamError> {
        check_count("count", count)?;
        check_period("period", period, bounds)?;
        check_period("warm_up", warm_up, bounds)?;
        if !(cold_factor > 1.0 && cold_factor <= MAX_COLD_FACTOR) {
            let reason = format!("cold_factor is above 1 and at most {MAX_COLD_FACTOR}, not {cold_factor}");
            return Err(ParamError::new("cold_factor", reason));
        }
        check_max_wait(max_wait)?;
        let curve = Curve::new(count, period, warm_up, cold_factor);
        if curve.max > MAX_COUNT as f64 {
            let reason = "warm_up is too long at this count and period: over 2^32 units would be stored in it";
            return Err(ParamError::new("warm_up", reason));
        }
        let most = curve.most_within(MAX_DEPTH as f64, MOST_ASKED);
        Ok(Self { count, period, warm_up, cold_factor, max_wait, curve, most })
    }

    fn limit(&self) -> u64 {
        (self.curve.max.floor() as u64).max(1)
    }

    /// What the key will stand at, `reset` from now, having said `allowed`.
    fn pass(&self, pace: &Pace, now: Micros, reset: Micros) -> Decision {
        Decision::pass(self.limit(), self.remaining(pace, now), reset)
    }

    fn remaining(&self, pace: &Pace, now: Micros) -> u64 {
        if pace.starts() <= now { pace.stored(&self.curve) } else { 0 }
    }
}

impl Algorithm for WarmingUp {
    /// Apart, since it is larger than the others' states.
    type State = Box<Pace>;

    fn step(&self, state: Option<&Self::State>, ask: &Ask) -> (Decision, Option<Self::State>) {
        let (curve, now, units) = (&self.curve, ask.now, ask.cost.unsigned_abs());
        let known = state.map(|pace| (pace, pace.forgotten(curve))).filter(|(_, forgotten)| now < *forgotten);
        let pace = known.map_or(Pace::new(now), |(pace, _)| pace.at(now, curve));
        if ask.cost < 0 {
            let pace = pace.give_back(units, now, curve);
            return (self.pass(&pace, now, pace.forgotten(curve) - now), state.map(|_| Box::new(pace)));
        }
        // Not of the pace brought up to now: rounding might make it forgotten at another moment.
        let reset = known.map_or(0, |(_, forgotten)| forgotten - now);
        let wait = (pace.starts() - now).max(0);
        let max_wait = patience(self.max_wait, ask.max_wait).unwrap_or(0);
        if units > self.most || (units > 0 && wait > max_wait) {
            let retry = (units <= self.most).then_some(wait - max_wait);
            return (Decision::refuse(self.limit(), self.remaining(&pace, now), retry, reset), None);
        }
        if units == 0 {
            return (Decision { wait, ..self.pass(&pace, now, reset) }, None);
        }
        let next = pace.spend(units, curve);
        let decision = Decision { wait, ..self.pass(&next, now, next.forgotten(curve) - now) };
        (decision, Some(Box::new(next)))
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let count = scale_count(self.count, factor, 1);
        let bounds = Bounds { max_period: self.period.max(self.warm_up) };
        Self::new(count, self.period, self.warm_up, self.cold_factor, self.max_wait, &bounds)
    }

    fn describe(&self) -> String {
        let (period, warm_up) = (format_duration(self.period), format_duration(self.warm_up));
        let mut text = format!("{{ count: {}, period: {period}, warm_up: {warm_up}", self.count);
        if self.cold_factor != COLD_FACTOR {
            text.push_str(&format!(", cold_factor: {}", self.cold_factor));
        }
        if let Some(max_wait) = self.max_wait {
            text.push_str(&format!(", max_wait: {}", format_duration(max_wait)));
        }
        text + " }"
    }

    /// The time that a unit takes, so that 10 per 10s and 1 per 1s are one, and the warm-up.
    fn time_base(&self) -> String {
        format!("{}/{}", self.curve.stable, self.warm_up)
    }

    fn takes_back(&self) -> TakesBack {
        TakesBack::Never
    }

    fn window(&self) -> Micros {
        Rate::new(self.count, self.period).span(self.limit()).ceil().max(1)
    }

    fn lua_params(&self) -> Vec<f64> {
        let Curve { stable, threshold, slope, max, cool } = self.curve;
        vec![stable, threshold, slope, max, cool, self.most as f64, self.max_wait.map_or(-1.0, |wait| wait as f64)]
    }
}
