//! The decision of a plan: all levels are evaluated at one moment, then charged or not, in one step.

use smallvec::SmallVec;

use super::{Plan, dry_run::dry_run};
use crate::{
    algorithm::{Params, State},
    domain::{Charge, Decision, Micros, StepInput, time::SECOND},
    hold::Outstanding,
};

/// The decisions of a plan's levels, in their order.
pub type Decisions = SmallVec<[Decision; 4]>;

/// Retry time of a request that is refused because the store is full. An estimate: room appears when something
/// expires.
const RETRY_WHEN_FULL: Micros = SECOND;

/// The states that a plan needs, which must not change while it is decided. Indexes are those of [`Plan::state_of`].
pub trait States {
    /// Returns the stored state while it is valid: until its `reset_after` has passed, even if the limit has changed
    /// since.
    fn get(&self, index: usize) -> Option<&State>;

    /// Returns the units that are held and not settled yet ([`crate::hold`]). Every decision counts them as charged
    /// at its own time.
    fn outstanding(&self, _index: usize) -> Outstanding {
        Outstanding::default()
    }

    /// Whether the store has an entry for the state, even one that has expired.
    fn has_entry(&self, index: usize) -> bool;

    /// Whether there is room for `count` new states, as far as the store can determine without making any.
    fn has_room(&self, _count: usize) -> bool {
        true
    }

    /// Makes room for `count` new states. `false`: there is none, and the levels that need it refuse. A store that
    /// allows requests when it is full returns `true`, and keeps only the states that fit.
    fn reserve(&mut self, count: usize) -> bool;

    /// Stores a state, which expires `reset_after` from now. Room for a new one must have been reserved.
    fn put(&mut self, index: usize, state: State, reset_after: Micros);
}

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
    if passes(plan, decisions) && make_room(plan, states, decisions, &mut next) {
        commit(plan, states, decisions, &mut next);
    } else {
        settle_refusal(plan, states, decisions, next, now);
    }
}

/// Reserves room for all new states. If there is none, the levels that need it refuse.
fn make_room(plan: &Plan<'_>, states: &mut impl States, decisions: &mut Decisions, next: &mut Next) -> bool {
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
            *decision = no_room(decision);
        }
    }
    false
}

/// Charges a request that passes: first the non-shadow levels, whose room is reserved, then the shadow levels that
/// fit.
fn commit(plan: &Plan<'_>, states: &mut impl States, decisions: &Decisions, next: &mut Next) {
    for shadow in [false, true] {
        for (index, (decision, next)) in decisions.iter().zip(next.iter_mut()).enumerate() {
            if plan.levels[index].limit.shadow != shadow {
                continue;
            }
            let state_index = plan.state_of(index);
            if let Some(state) = next.take()
                && (!shadow || states.has_entry(state_index) || states.reserve(1))
            {
                states.put(state_index, state, decision.reset_after);
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
                put_if_room(plan, states, index, state, decision.reset_after);
            }
        } else {
            *decision = step(plan, states, index, 0, now).0;
        }
    }
}

/// Decides the non-shadow levels first; each charges if it allows. Whether shadow levels are charged depends on the
/// result, so they are decided afterwards: one of them may share its state with an earlier level.
fn independent(decisions: &mut Decisions, plan: &Plan<'_>, states: &mut impl States, now: Micros) {
    decisions.extend(plan.levels.iter().map(|_| Decision::pass(0, 0, 0)));
    let mut allowed = true;
    for (index, level) in plan.levels.iter().enumerate().filter(|(_, level)| !level.limit.shadow) {
        let (mut decision, next) = step(plan, states, index, level.cost, now);
        if let Some(state) = next
            && !put_if_room(plan, states, index, state, decision.reset_after)
            && decision.allowed
        {
            decision = no_room(&decision);
        }
        allowed &= decision.allowed;
        decisions[index] = decision;
    }
    for (index, level) in plan.levels.iter().enumerate().filter(|(_, level)| level.limit.shadow) {
        let (mut decision, next) = step(plan, states, index, level.cost, now);
        if allowed || !decision.allowed || charges_anyway(plan, index, level.cost) {
            if let Some(state) = next {
                put_if_room(plan, states, index, state, decision.reset_after);
            }
        } else {
            decision = step(plan, states, index, 0, now).0;
        }
        decisions[index] = decision;
    }
}

/// If levels refuse, only they charge, and the others report a preview. Each level is judged by its own cost, so
/// among levels that share a state some may refuse only after the others have charged.
fn over_limit_only(decisions: &mut Decisions, plan: &Plan<'_>, states: &mut impl States, now: Micros) {
    let judged = plan.levels.iter().enumerate();
    let judged: Decisions = judged.map(|(index, level)| step(plan, states, index, level.cost, now).0).collect();
    if passes(plan, &judged) {
        return independent(decisions, plan, states, now);
    }
    for (index, (level, judged)) in plan.levels.iter().zip(&judged).enumerate() {
        let (decision, next) = step(plan, states, index, if judged.allowed { 0 } else { level.cost }, now);
        if let Some(state) = next {
            put_if_room(plan, states, index, state, decision.reset_after);
        }
        decisions.push(decision);
    }
}

/// Whether a level charges `cost` even when another level refuses.
fn charges_anyway(plan: &Plan<'_>, index: usize, cost: i64) -> bool {
    cost > 0 && plan.levels[index].params().charges_denied()
}

fn step(plan: &Plan<'_>, states: &impl States, index: usize, cost: i64, now: Micros) -> (Decision, Option<State>) {
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
        held => step_with_outstanding(params, &plan.levels[index].limit.params, state, held, &input),
    }
}

/// Returns the time until a level's state and its outstanding units no longer matter, whatever the factor of the
/// request.
pub(crate) fn lifetime(plan: &Plan<'_>, states: &impl States, index: usize, now: Micros) -> Micros {
    step_by(&plan.levels[index].limit.params, plan, states, index, 0, now).0.reset_after
}

/// Returns a preview of a level.
pub(crate) fn peek(plan: &Plan<'_>, states: &impl States, index: usize, now: Micros) -> Decision {
    step(plan, states, index, 0, now).0
}

/// Decides a level with outstanding units: judged as if they were spent now, but the next state does not include
/// them. They are held by `base`, the limit without the request's factor.
#[cold]
fn step_with_outstanding(
    params: &Params,
    base: &Params,
    state: Option<&State>,
    held: Outstanding,
    input: &StepInput,
) -> (Decision, Option<State>) {
    let under = |state: Option<&State>, input: &StepInput| {
        let all = base.charge(state, held.units, input.now, input.phase);
        params.step(all.as_ref().or(state), input)
    };
    let (mut decision, next) = if input.cost < 0 {
        // Outstanding units cannot be refunded.
        let (refunded, next) = params.step(state, input);
        let stands = under(next.as_ref().or(state), &StepInput { cost: 0, ..*input }).0;
        let Decision { remaining, reset_after, next_after, .. } = stands;
        (Decision { remaining, reset_after, next_after, ..refunded }, next)
    } else {
        let (decision, next) = under(state, input);
        // A refusal stores a state that was clamped.
        let units = if decision.allowed { input.cost.unsigned_abs() } else { 0 };
        let charged = || params.charge(state, units, input.now, input.phase);
        let next = next.and_then(|_| if input.cost > 0 { charged() } else { params.step(state, input).1 });
        (decision, next)
    };
    // Outstanding units may count as spent as late as at their deadline, on top of the state at that time, if that
    // has not expired. A window may begin in between.
    let (late, left) = (held.until.max(input.now), next.as_ref().or(state));
    let peek = StepInput { now: late, cost: 0, ..*input };
    let lifetime = |state: Option<&State>| {
        let all = base.charge(state, held.units, late, input.phase);
        late - input.now + base.step(all.as_ref().or(state), &peek).0.reset_after
    };
    decision.reset_after = decision.reset_after.max(lifetime(left)).max(lifetime(None));
    (decision, next)
}

/// Whether all non-shadow levels allow.
pub(crate) fn passes(plan: &Plan<'_>, decisions: &[Decision]) -> bool {
    plan.levels.iter().zip(decisions).all(|(level, decision)| level.limit.shadow || decision.allowed)
}

pub(crate) fn put_if_room(
    plan: &Plan<'_>,
    states: &mut impl States,
    index: usize,
    state: State,
    reset_after: Micros,
) -> bool {
    let state_index = plan.state_of(index);
    let room = states.has_entry(state_index) || states.reserve(1);
    if room {
        states.put(state_index, state, reset_after);
    }
    room
}

pub(crate) fn no_room(decision: &Decision) -> Decision {
    let next_after = Some(RETRY_WHEN_FULL);
    Decision { next_after, ..Decision::refuse(decision.limit, 0, Some(RETRY_WHEN_FULL), 0) }
}
