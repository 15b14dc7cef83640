//! Model of "Several limits, one decision" in the specification, for one moment and unlimited
//! space. It copies everything and compares states by their full names.

use std::collections::HashMap;

use crate::{
    algorithm::{Params, State},
    domain::{Charge, Decision, Micros, StepInput},
};

/// The identity of a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StateKey {
    /// The segments that the limit covers.
    pub(crate) path: Vec<&'static str>,
    pub(crate) from_policy: bool,
    /// The name, or the ordinal without one.
    pub(crate) discriminator: Result<String, usize>,
    pub(crate) algorithm: &'static str,
    pub(crate) time_base: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) state_key: StateKey,
    pub(crate) params: Params,
    pub(crate) shadow: bool,
    pub cost: i64,
    pub(crate) phase: Micros,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) now: Micros,
    pub(crate) charge: Charge,
    pub(crate) max_wait: Option<Micros>,
    pub(crate) levels: Vec<Level>,
}

/// The stored states, each with its expiry.
pub(crate) type Memory = HashMap<StateKey, (State, Micros)>;

/// Returns the decisions and the states after them.
pub fn decide(request: &Request, before: &Memory) -> (Vec<Decision>, Memory) {
    match request.charge {
        Charge::AllOrNothing => all_or_nothing(request, before),
        Charge::Independent => independent(request, before),
        Charge::OverLimitOnly => over_limit_only(request, before),
    }
}

fn all_or_nothing(request: &Request, before: &Memory) -> (Vec<Decision>, Memory) {
    let total = |state_key: &StateKey| {
        request.levels.iter().filter(|level| level.state_key == *state_key).map(|level| level.cost).sum()
    };
    let judge = |level: &Level, cost| judge(request, before, level, cost);
    let allowed = request.levels.iter().all(|level| level.shadow || judge(level, total(&level.state_key)).0.allowed);
    let mut after = before.clone();
    let decisions = request.levels.iter().map(|level| {
        let cost: i64 = total(&level.state_key);
        let (decision, next) = judge(level, cost);
        // A refusal stores only a state that it has clamped.
        if allowed || !decision.allowed || charges_anyway(level, cost) {
            keep(request, &mut after, level, &decision, next);
            return decision;
        }
        judge(level, 0).0
    });
    (decisions.collect(), after)
}

fn independent(request: &Request, before: &Memory) -> (Vec<Decision>, Memory) {
    let mut after = before.clone();
    let mut decisions = HashMap::new();
    let with_index = || request.levels.iter().enumerate();
    for (index, level) in with_index().filter(|(_, level)| !level.shadow) {
        let (decision, next) = judge(request, &after, level, level.cost);
        keep(request, &mut after, level, &decision, next);
        decisions.insert(index, decision);
    }
    let allowed = decisions.values().all(|decision| decision.allowed);
    for (index, level) in with_index().filter(|(_, level)| level.shadow) {
        let (mut decision, next) = judge(request, &after, level, level.cost);
        if allowed || !decision.allowed || charges_anyway(level, level.cost) {
            keep(request, &mut after, level, &decision, next);
        } else {
            decision = judge(request, &after, level, 0).0;
        }
        decisions.insert(index, decision);
    }
    ((0..request.levels.len()).map(|index| decisions[&index]).collect(), after)
}

fn over_limit_only(request: &Request, before: &Memory) -> (Vec<Decision>, Memory) {
    let refuses: Vec<_> =
        request.levels.iter().map(|level| !judge(request, before, level, level.cost).0.allowed).collect();
    if request.levels.iter().zip(&refuses).all(|(level, refuses)| level.shadow || !refuses) {
        return independent(request, before);
    }
    let mut after = before.clone();
    let decisions = request.levels.iter().zip(refuses).map(|(level, refuses)| {
        let (decision, next) = judge(request, &after, level, if refuses { level.cost } else { 0 });
        keep(request, &mut after, level, &decision, next);
        decision
    });
    (decisions.collect(), after)
}

/// Whether a level charges `cost` whichever level refused: `charge_denied` charges every cost above 0.
fn charges_anyway(level: &Level, cost: i64) -> bool {
    level.params.charges_denied() && cost > 0
}

fn keep(request: &Request, memory: &mut Memory, level: &Level, decision: &Decision, next: Option<State>) {
    next.map(|state| memory.insert(level.state_key.clone(), (state, request.now + decision.reset_after)));
}

/// Returns the state of a level if it has not expired.
pub(crate) fn live<'a>(request: &Request, memory: &'a Memory, level: &Level) -> Option<&'a State> {
    memory.get(&level.state_key).filter(|(_, until)| *until > request.now).map(|(state, _)| state)
}

fn judge(request: &Request, memory: &Memory, level: &Level, cost: i64) -> (Decision, Option<State>) {
    let input = StepInput { now: request.now, cost, max_wait: request.max_wait, phase: level.phase };
    level.params.step(live(request, memory, level), &input)
}
