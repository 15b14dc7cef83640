//! The one step: all levels of a plan judged at one moment, then charged or not.

use smallvec::SmallVec;

use super::Plan;
use crate::{
    algorithm::State,
    domain::{Charge, Decision, Micros, time::SECOND},
};

/// The decisions of a plan's levels, in their order.
pub type Decisions = SmallVec<[Decision; 4]>;

/// When to come back to a store that had no room. An estimate: room comes when something expires.
const RETRY_WHEN_FULL: Micros = SECOND;

/// The states that a plan needs, held still while it is decided. Indexes are those of [`Plan::state_of`].
pub trait States {
    /// What is remembered.
    fn get(&self, index: usize) -> Option<&State>;

    /// Makes room for `count` states that are not there yet. `false`: there is none.
    fn reserve(&mut self, count: usize) -> bool;

    /// Remembers a state, which means nothing any more `reset_after` from now. Room for one that was not there has been
    /// reserved.
    fn put(&mut self, index: usize, state: State, reset_after: Micros);
}

/// Decides a plan at `now`.
pub fn decide(plan: &Plan<'_>, states: &mut impl States, now: Micros) -> Decisions {
    match plan.charge {
        Charge::AllOrNothing => all_or_nothing(plan, states, now),
        Charge::Independent => independent(plan, states, now),
    }
}

type Steps = SmallVec<[(Decision, Option<State>); 4]>;

fn all_or_nothing(plan: &Plan<'_>, states: &mut impl States, now: Micros) -> Decisions {
    let mut steps: Steps =
        (0..plan.levels.len()).map(|index| step(plan, states, index, plan.total_cost(index), now)).collect();
    if passes(plan, &steps) && make_room(plan, states, &mut steps) {
        for (index, (decision, next)) in steps.iter_mut().enumerate() {
            if let Some(state) = next.take() {
                let place = plan.state_of(index);
                if !plan.levels[index].limit.shadow || states.get(place).is_some() || states.reserve(1) {
                    states.put(place, state, decision.reset_after);
                }
            }
        }
    } else {
        settle_refusal(plan, states, &mut steps, now);
    }
    steps.into_iter().map(|(decision, _)| decision).collect()
}

/// Makes room for all the states that must be new, or else turns their levels into refusals.
fn make_room(plan: &Plan<'_>, states: &mut impl States, steps: &mut Steps) -> bool {
    let is_new = |states: &dyn States, index: usize, next: &Option<State>| {
        next.is_some() && !plan.levels[index].limit.shadow && states.get(plan.state_of(index)).is_none()
    };
    let firsts = steps.iter().enumerate().filter(|(index, _)| plan.state_of(*index) == *index);
    let count = firsts.filter(|(index, (_, next))| is_new(states, *index, next)).count();
    if count == 0 || states.reserve(count) {
        return true;
    }
    for (index, (decision, next)) in steps.iter_mut().enumerate() {
        if is_new(states, index, next) {
            *next = None;
            *decision = no_room(decision);
        }
    }
    false
}

/// After a refusal only those levels are charged that charge what is denied; the others tell how they stand uncharged.
fn settle_refusal(plan: &Plan<'_>, states: &mut impl States, steps: &mut Steps, now: Micros) {
    for (index, (decision, next)) in steps.iter_mut().enumerate() {
        if plan.levels[index].params().charges_denied() {
            if let Some(state) = next.take() {
                put_if_room(plan, states, index, state, decision.reset_after);
            }
        } else if decision.allowed {
            *decision = step(plan, states, index, 0, now).0;
        }
    }
}

fn independent(plan: &Plan<'_>, states: &mut impl States, now: Micros) -> Decisions {
    let mut steps = Steps::new();
    for (index, level) in plan.levels.iter().enumerate() {
        let (mut decision, mut next) = step(plan, states, index, level.cost, now);
        if !level.limit.shadow
            && let Some(state) = next.take()
            && !put_if_room(plan, states, index, state, decision.reset_after)
            && decision.allowed
        {
            decision = no_room(&decision);
        }
        steps.push((decision, next));
    }
    let allowed = passes(plan, &steps);
    for (index, (decision, next)) in steps.iter_mut().enumerate() {
        if !plan.levels[index].limit.shadow {
            continue;
        }
        if allowed || plan.levels[index].params().charges_denied() {
            if let Some(state) = next.take() {
                put_if_room(plan, states, index, state, decision.reset_after);
            }
        } else if decision.allowed {
            *decision = step(plan, states, index, 0, now).0;
        }
    }
    steps.into_iter().map(|(decision, _)| decision).collect()
}

fn step(plan: &Plan<'_>, states: &impl States, index: usize, cost: i64, now: Micros) -> (Decision, Option<State>) {
    let ask = plan.ask(index, cost, now);
    plan.levels[index].params().step(states.get(plan.state_of(index)), &ask)
}

fn passes(plan: &Plan<'_>, steps: &Steps) -> bool {
    plan.levels.iter().zip(steps).all(|(level, (decision, _))| level.limit.shadow || decision.allowed)
}

fn put_if_room(plan: &Plan<'_>, states: &mut impl States, index: usize, state: State, reset_after: Micros) -> bool {
    let place = plan.state_of(index);
    let room = states.get(place).is_some() || states.reserve(1);
    if room {
        states.put(place, state, reset_after);
    }
    room
}

fn no_room(decision: &Decision) -> Decision {
    Decision::refuse(decision.limit, 0, Some(RETRY_WHEN_FULL), 0)
}
