//! The decision of one level, and the interface of the states that it needs.

use smallvec::SmallVec;

use super::{Plan, outstanding::step_with_outstanding};
use crate::{
    algorithm::{Params, State},
    domain::{Decision, Micros, time::SECOND},
    hold::Outstanding,
};

/// The decisions of a plan's levels, in their order.
pub type Decisions = SmallVec<[Decision; 4]>;

/// Retry time of a request that is refused because the store is full. An estimate: space is freed
/// when a state expires.
const RETRY_WHEN_FULL: Micros = SECOND;

/// The states that a plan needs, which must not change while it is decided. Indexes are those of [`Plan::state_of`].
pub trait States {
    /// Returns the stored state until it expires, even if the limit has changed since.
    fn get(&self, index: usize) -> Option<&State>;

    /// Returns the units that are held and not settled yet ([`crate::hold`]). Every decision counts them as charged
    /// at its own time.
    fn outstanding(&self, _index: usize) -> Outstanding {
        Outstanding::default()
    }

    /// Whether the store has an entry for the state, even one that has expired.
    fn has_entry(&self, index: usize) -> bool;

    /// Whether there is space for `count` new states, as far as the store can determine without
    /// making any.
    fn has_capacity(&self, _count: usize) -> bool {
        true
    }

    /// Makes space for `count` new states. `false`: there is none, and the levels that need it
    /// refuse. A store that allows requests when it is full returns `true`, and keeps only the
    /// states that fit.
    fn reserve(&mut self, count: usize) -> bool;

    /// Stores a state, which expires `lasts` from now. Space for a new one must have been reserved.
    fn put(&mut self, index: usize, state: State, lasts: Micros);
}

/// Whether a level charges `cost` even when another level refuses.
pub(super) fn charges_anyway(plan: &Plan<'_>, index: usize, cost: i64) -> bool {
    cost > 0 && plan.levels[index].params().charges_denied()
}

pub(crate) fn step(
    plan: &Plan<'_>,
    states: &impl States,
    index: usize,
    cost: i64,
    now: Micros,
) -> (Decision, Option<State>) {
    step_by(plan.levels[index].params(), plan, states, index, cost, now)
}

#[inline]
fn step_by(
    params: &Params,
    plan: &Plan<'_>,
    states: &impl States,
    index: usize,
    cost: i64,
    now: Micros,
) -> (Decision, Option<State>) {
    let (input, state_index) = (plan.step_input(index, cost, now), plan.state_of(index));
    let state = states.get(state_index);
    match states.outstanding(state_index) {
        Outstanding { units: 0, .. } => params.step(state, &input),
        held => step_with_outstanding(params, &plan.levels[index].base(), state, held, &input),
    }
}

/// Returns the time until a level's state and its outstanding units no longer matter, regardless of
/// the request's factor.
pub(crate) fn lifetime(plan: &Plan<'_>, states: &impl States, index: usize, now: Micros) -> Micros {
    step_by(&plan.levels[index].base(), plan, states, index, 0, now).0.reset_after
}

/// Returns how long a state matters, if its limit alone needs it for `reset_after`.
pub(crate) fn lasts(params: &Params, state: &State, reset_after: Micros, now: Micros) -> Micros {
    params.kept_until(state).map_or(reset_after, |until| reset_after.max(until - now))
}

/// Returns a preview of a level.
pub(crate) fn peek(plan: &Plan<'_>, states: &impl States, index: usize, now: Micros) -> Decision {
    step(plan, states, index, 0, now).0
}

/// Whether all non-shadow levels allow.
pub(crate) fn passes(plan: &Plan<'_>, decisions: &[Decision]) -> bool {
    plan.levels.iter().zip(decisions).all(|(level, decision)| level.limit.shadow || decision.allowed)
}

pub(crate) fn put_if_it_fits(
    plan: &Plan<'_>,
    states: &mut impl States,
    index: usize,
    state: State,
    reset_after: Micros,
    now: Micros,
) -> bool {
    let state_index = plan.state_of(index);
    let fits = states.has_entry(state_index) || states.reserve(1);
    if fits {
        let lasts = lasts(plan.levels[index].params(), &state, reset_after, now);
        states.put(state_index, state, lasts);
    }
    fits
}

pub(crate) fn refuse_as_full(decision: &Decision) -> Decision {
    let next_after = Some(RETRY_WHEN_FULL);
    Decision { next_after, ..Decision::refuse(decision.limit, 0, Some(RETRY_WHEN_FULL), 0) }
}
