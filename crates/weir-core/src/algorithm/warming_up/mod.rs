#![doc = include_str!("README.md")]

mod curve;
#[cfg(test)]
pub(crate) mod spec;
mod state;

use self::{curve::Curve, state::WarmupState};
use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError, UndoRule,
    fields::fields,
    kinds::{Kind as _, Period, Real, Units, Wait},
    params::{MAX_COUNT, MAX_DEPTH, SHAPES, accepted_wait},
    span::Rate,
};
use crate::domain::{
    Decision, Micros, StepInput,
    request::{MAX_COST, MAX_LEVELS},
};

/// Maximum of `cold_factor`.
const MAX_COLD_FACTOR: f64 = 1e6;

/// Default of `cold_factor`: how many times slower a cold start is.
const COLD_FACTOR: f64 = 3.0;

/// Maximum units of one decision: several levels of a request may share a state, which is charged their total cost.
const MAX_DECISION_COST: u64 = MAX_COST as u64 * MAX_LEVELS as u64;

fields! {
    pub(crate) struct Fields as proto::WarmingUp {
        count: Units,
        period: Period,
        warm_up: Period,
        cold_factor: Real = COLD_FACTOR,
        max_wait: Wait = None,
    }
    examples [
        { count: 1, period: 1s, warm_up: 10s },
        { count: 2, period: 1s, warm_up: 4s, max_wait: 2s },
        { count: 5, period: 1s, warm_up: 4s, cold_factor: 10 },
        { count: 9, period: 1s, warm_up: 3s, cold_factor: 4.5, max_wait: 500ms },
        { count: 3, period: 1s, warm_up: 10s },
        { count: 7, period: 1m, warm_up: 1h, max_wait: 10s },
        { count: 3000000, period: 1s, warm_up: 1s, cold_factor: 1.5 },
        { count: 999983, period: 1d, warm_up: 1h, cold_factor: 1000000 },
        { count: 4294967296, period: 1us, warm_up: 1us },
        { count: 1, period: 31d, warm_up: 1us, cold_factor: 1.0001 },
        { count: 1, period: 1us, warm_up: 1h, cold_factor: 2 },
        { count: 500, period: 31d, warm_up: 31d },
        { count: 400, period: 30d, warm_up: 30d },
    ]
}

/// `count` per `period`, evenly, and more slowly after an idle time.
#[derive(Clone, Debug, PartialEq)]
pub struct WarmingUp {
    fields: Fields,
    curve: Curve,
    /// Maximum units of one request.
    max_cost: u64,
}

impl WarmingUp {
    fn limit(&self) -> u64 {
        (self.curve.max.floor() as u64).max(1)
    }

    /// Returns the decision that allows a request and leaves the key in `state`, with `reset` until it is forgotten.
    fn pass(&self, state: &WarmupState, now: Micros, reset: Micros) -> Decision {
        Decision::pass(self.limit(), self.remaining(state, now), reset)
    }

    fn remaining(&self, state: &WarmupState, now: Micros) -> u64 {
        if state.starts() <= now { state.stored(&self.curve) } else { 0 }
    }

    /// Returns the key at `now` and, if it is known, the time from which it is forgotten.
    fn at(&self, state: Option<&WarmupState>, now: Micros) -> (WarmupState, Option<Micros>) {
        let known = state.map(|state| (state, state.forgotten(&self.curve))).filter(|(_, forgotten)| now < *forgotten);
        match known {
            Some((state, forgotten)) => (state.at(now, &self.curve), Some(forgotten)),
            None => (WarmupState::new(now), None),
        }
    }
}

impl Algorithm for WarmingUp {
    type Fields = Fields;
    /// Boxed, since it is larger than the states of other algorithms.
    type State = Box<WarmupState>;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let Fields { count, period, warm_up, cold_factor, .. } = fields;
        if !(cold_factor > 1.0 && cold_factor <= MAX_COLD_FACTOR) {
            let reason = format!("cold_factor must be above 1 and at most {MAX_COLD_FACTOR}, not {cold_factor}");
            return Err(ParamError::new("cold_factor", reason));
        }
        let curve = Curve::new(count, period, warm_up, cold_factor);
        if curve.max > MAX_COUNT as f64 {
            let reason = "warm_up is too long at this count and period: over 2^32 units would be stored in it";
            return Err(ParamError::new("warm_up", reason));
        }
        Ok(Self { fields, curve, max_cost: curve.max_units_within(MAX_DEPTH as f64, MAX_DECISION_COST) })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn step(&self, state: Option<&Self::State>, input: &StepInput) -> (Decision, Option<Self::State>) {
        let (curve, now, units) = (&self.curve, input.now, input.cost.unsigned_abs());
        let (current, forgotten) = self.at(state.map(|state| &**state), now);
        if input.cost < 0 {
            let current = current.refund(units, now, curve);
            return (self.pass(&current, now, current.forgotten(curve) - now), state.map(|_| Box::new(current)));
        }
        // Not computed from the state at `now`, for which rounding might give another time.
        let reset = forgotten.map_or(0, |forgotten| forgotten - now);
        let wait = (current.starts() - now).max(0);
        let max_wait = accepted_wait(self.fields.max_wait, input.max_wait).unwrap_or(0);
        if units > self.max_cost || (units > 0 && wait > max_wait) {
            let retry = (units <= self.max_cost).then_some(wait - max_wait);
            return (Decision::refuse(self.limit(), self.remaining(&current, now), retry, reset), None);
        }
        if units == 0 {
            return (Decision { wait, ..self.pass(&current, now, reset) }, None);
        }
        let next = current.spend(units, curve);
        let decision = Decision { wait, ..self.pass(&next, now, next.forgotten(curve) - now) };
        (decision, Some(Box::new(next)))
    }

    /// A guess, corrected by the same numbers that decisions use, which takes a step or two.
    fn next_after(&self, state: Option<&Self::State>, input: &StepInput, _: &Decision) -> Option<Micros> {
        let state = state.filter(|_| self.curve.max >= 1.0)?;
        let is_left = |now| self.remaining(&self.at(Some(state), now).0, now) > 0;
        let mut at = state.stores_one(&self.curve).max(input.now + 1);
        while !is_left(at) {
            at += 1;
        }
        while at > input.now + 1 && is_left(at - 1) {
            at -= 1;
        }
        Some(at - input.now)
    }

    /// The time that a unit takes, so that 10 per 10s and 1 per 1s are the same, and the warm-up.
    fn time_base(&self) -> String {
        format!("{}/{}", self.curve.stable, self.fields.warm_up)
    }

    fn undo_rule(&self) -> UndoRule {
        UndoRule::Never
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        Err(SHAPES)
    }

    fn window(&self) -> Micros {
        Rate::new(self.fields.count, self.fields.period).span(self.limit()).ceil().max(1)
    }

    fn lua_params(&self) -> Vec<f64> {
        let Curve { stable, threshold, slope, max, cool } = self.curve;
        vec![stable, threshold, slope, max, cool, self.max_cost as f64, Wait::number(self.fields.max_wait)]
    }
}
