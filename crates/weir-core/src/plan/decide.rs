//! The decision of a plan: all levels are evaluated at one moment, then charged or not, in one step.

use smallvec::SmallVec;

use super::{
    Plan,
    dry_run::dry_run,
    independent::{independent, over_limit_only},
    step::{Decisions, States, charges_anyway, lasts, passes, put_if_it_fits, refuse_as_full, step},
};
use crate::{
    algorithm::State,
    domain::{Charge, Micros},
};

/// Decides a plan at `now`.
pub fn decide(plan: &Plan<'_>, states: &mut impl States, now: Micros) -> Decisions {
    let mut decisions = Decisions::new();
    decide_into(&mut decisions, plan, states, now);
    decisions
}

/// Like [`decide`], but pushes the decisions to an empty list: moving them would take a noticeable part of the time
/// of a decision.
pub fn decide_into(decisions: &mut Decisions, plan: &Plan<'_>, states: &mut impl States, now: Micros) {
    if plan.dry_run {
        *decisions = dry_run(plan, states, now);
    } else {
        charge(decisions, plan, states, now);
    }
}

pub(super) fn charge(decisions: &mut Decisions, plan: &Plan<'_>, states: &mut impl States, now: Micros) {
    match plan.charge {
        Charge::AllOrNothing => all_or_nothing(decisions, plan, states, now),
        Charge::Independent => independent(decisions, plan, states, now),
        Charge::OverLimitOnly => over_limit_only(decisions, plan, states, now),
    }
}

/// The next states of the levels, in their order.
type Next = SmallVec<[Option<State>; 4]>;

fn all_or_nothing(decisions: &mut Decisions, plan: &Plan<'_>, states: &mut impl States, now: Micros) {
    let mut next = Next::new();
    for index in 0..plan.levels.len() {
        let (decision, state) = step(plan, states, index, plan.total_cost(index), now);
        decisions.push(decision);
        next.push(state);
    }
    if passes(plan, decisions) && reserve_new(plan, states, decisions, &mut next) {
        commit(plan, states, decisions, &mut next, now);
    } else {
        settle_refusal(plan, states, decisions, next, now);
    }
}

/// Reserves space for all new states. If there is none, the levels that need it refuse.
fn reserve_new(plan: &Plan<'_>, states: &mut impl States, decisions: &mut Decisions, next: &mut Next) -> bool {
    let is_new = |states: &dyn States, index: usize, next: &Option<State>| {
        next.is_some() && !plan.levels[index].limit.shadow && !states.has_entry(plan.state_of(index))
    };
    let counted_before = |index: usize| {
        let mut before = plan.levels[..index].iter().enumerate();
        plan.has_duplicates()
            && before.any(|(duplicate, level)| !level.limit.shadow && plan.state_of(duplicate) == plan.state_of(index))
    };
    let fresh = next.iter().enumerate().filter(|(index, next)| is_new(states, *index, next));
    let count = fresh.filter(|(index, _)| !counted_before(*index)).count();
    if count == 0 || states.reserve(count) {
        return true;
    }
    for (index, (decision, next)) in decisions.iter_mut().zip(next).enumerate() {
        if is_new(states, index, next) {
            *next = None;
            *decision = refuse_as_full(decision);
        }
    }
    false
}

/// Charges a request that passes: first the non-shadow levels, whose space is reserved, then the
/// shadow levels that fit.
fn commit(plan: &Plan<'_>, states: &mut impl States, decisions: &Decisions, next: &mut Next, now: Micros) {
    for shadow in [false, true] {
        for (index, (decision, next)) in decisions.iter().zip(next.iter_mut()).enumerate() {
            if plan.levels[index].limit.shadow != shadow {
                continue;
            }
            let state_index = plan.state_of(index);
            if let Some(state) = next.take()
                && (!shadow || states.has_entry(state_index) || states.reserve(1))
            {
                let lasts = lasts(plan.levels[index].params(), &state, decision.reset_after, now);
                states.put(state_index, state, lasts);
            }
        }
    }
}

/// Settles a refused request: only levels with `charge_denied` are charged, and the other allowing levels report a
/// preview. A refusing level may clamp a state that another limit made, and that state is stored.
fn settle_refusal(plan: &Plan<'_>, states: &mut impl States, decisions: &mut Decisions, next: Next, now: Micros) {
    for (index, (decision, next)) in decisions.iter_mut().zip(next).enumerate() {
        if !decision.allowed || charges_anyway(plan, index, plan.total_cost(index)) {
            if let Some(state) = next {
                put_if_it_fits(plan, states, index, state, decision.reset_after, now);
            }
        } else {
            *decision = step(plan, states, index, 0, now).0;
        }
    }
}
