//! The one step: all levels of a plan judged at one moment, then charged or not.

use smallvec::SmallVec;

use super::{Plan, dry_run::dry_run};
use crate::{
    algorithm::{Params, State},
    domain::{Ask, Charge, Decision, Micros, time::SECOND},
    hold::Outstanding,
};

/// The decisions of a plan's levels, in their order.
pub type Decisions = SmallVec<[Decision; 4]>;

/// When to come back to a store that had no room. An estimate: room comes when something expires.
const RETRY_WHEN_FULL: Micros = SECOND;

/// The states that a plan needs, held still while it is decided. Indexes are those of [`Plan::state_of`].
pub trait States {
    /// What is remembered and still means something: its `reset_after` is not over, whatever the limit has become since.
    fn get(&self, index: usize) -> Option<&State>;

    /// What is held of it and not settled yet ([`crate::hold`]). Every decision counts that as charged at its moment.
    fn outstanding(&self, _index: usize) -> Outstanding {
        Outstanding::default()
    }

    /// Whether it has a place, also where it means nothing any more.
    fn has_place(&self, index: usize) -> bool;

    /// Whether there is room for `count` states that are not there yet, as far as that can be told without making any.
    fn has_room(&self, _count: usize) -> bool {
        true
    }

    /// Makes room for `count` states that are not there yet. `false`: there is none, and what needs it is refused. A store
    /// whose rule is to let it pass says `true`, and remembers of what is put as much as it has room for.
    fn reserve(&mut self, count: usize) -> bool;

    /// Remembers a state, which means nothing any more `reset_after` from now. Room for one that was not there has been
    /// asked for.
    fn put(&mut self, index: usize, state: State, reset_after: Micros);
}

/// Decides a plan at `now`.
pub fn decide(plan: &Plan<'_>, states: &mut impl States, now: Micros) -> Decisions {
    let mut decisions = Decisions::new();
    decide_into(&mut decisions, plan, states, now);
    decisions
}

/// The same, in place: puts the decisions where none are yet. Moving them takes as long as a part of the decision.
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

/// The states that levels would leave behind, in their order.
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

/// Makes room for all the states that must be new, or else turns their levels into refusals.
fn make_room(plan: &Plan<'_>, states: &mut impl States, decisions: &mut Decisions, next: &mut Next) -> bool {
    let is_new = |states: &dyn States, index: usize, next: &Option<State>| {
        next.is_some() && !plan.levels[index].limit.shadow && !states.has_place(plan.state_of(index))
    };
    let counted_before = |index: usize| {
        let mut before = plan.levels[..index].iter().enumerate();
        plan.has_twins()
            && before.any(|(twin, level)| !level.limit.shadow && plan.state_of(twin) == plan.state_of(index))
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

/// Charges a request that passes: first the levels that count, whose room is reserved, then those shadows that fit.
fn commit(plan: &Plan<'_>, states: &mut impl States, decisions: &Decisions, next: &mut Next) {
    for shadow in [false, true] {
        for (index, (decision, next)) in decisions.iter().zip(next.iter_mut()).enumerate() {
            if plan.levels[index].limit.shadow != shadow {
                continue;
            }
            let place = plan.state_of(index);
            if let Some(state) = next.take()
                && (!shadow || states.has_place(place) || states.reserve(1))
            {
                states.put(place, state, decision.reset_after);
            }
        }
    }
}

/// After a refusal only those levels are charged that charge what is denied; the others tell how they stand uncharged. What
/// refuses may cut a state that another limit made, and that is kept.
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

/// The levels that count go first, each charging if it passes. Whether the shadows are charged is known only then, and
/// they are judged then: one of them may share its state with a level before it.
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

/// Where levels refuse, only they charge, and the others tell how they stand. Each is judged by its own cost, so of those that
/// share a state some may refuse only once the others have charged.
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
    let (ask, place) = (plan.ask(index, cost, now), plan.state_of(index));
    let state = states.get(place);
    match states.outstanding(place) {
        Outstanding { units: 0, .. } => params.step(state, &ask),
        held => step_under(params, &plan.levels[index].limit.params, state, held, &ask),
    }
}

/// For how long a level's state and what is held of it matter, whatever the factor of the request.
pub(crate) fn matters_for(plan: &Plan<'_>, states: &impl States, index: usize, now: Micros) -> Micros {
    step_by(&plan.levels[index].limit.params, plan, states, index, 0, now).0.reset_after
}

/// How a level stands.
pub(crate) fn peek(plan: &Plan<'_>, states: &impl States, index: usize, now: Micros) -> Decision {
    step(plan, states, index, 0, now).0
}

/// The same where units of the level are held: judged as if they were spent now, but remembered without them. They are held by
/// `base`, the limit without the request's factor.
#[cold]
fn step_under(
    params: &Params,
    base: &Params,
    state: Option<&State>,
    held: Outstanding,
    ask: &Ask,
) -> (Decision, Option<State>) {
    let under = |state: Option<&State>, ask: &Ask| {
        let all = base.charge(state, held.units, ask.now, ask.phase);
        params.step(all.as_ref().or(state), ask)
    };
    let (mut decision, next) = if ask.cost < 0 {
        // What is held is not given back.
        let (refunded, next) = params.step(state, ask);
        let stands = under(next.as_ref().or(state), &Ask { cost: 0, ..*ask }).0;
        let Decision { remaining, reset_after, next_after, .. } = stands;
        (Decision { remaining, reset_after, next_after, ..refunded }, next)
    } else {
        let (decision, next) = under(state, ask);
        // A refusal keeps a state that was cut.
        let units = if decision.allowed { ask.cost.unsigned_abs() } else { 0 };
        let charged = || params.charge(state, units, ask.now, ask.phase);
        let next = next.and_then(|_| if ask.cost > 0 { charged() } else { params.step(state, ask).1 });
        (decision, next)
    };
    // What is held may count as spent as late as at its deadline, on top of what there is by then, if that is not forgotten.
    // A window may begin in between.
    let (late, left) = (held.until.max(ask.now), next.as_ref().or(state));
    let peek = Ask { now: late, cost: 0, ..*ask };
    let lasts = |state: Option<&State>| {
        let all = base.charge(state, held.units, late, ask.phase);
        late - ask.now + base.step(all.as_ref().or(state), &peek).0.reset_after
    };
    decision.reset_after = decision.reset_after.max(lasts(left)).max(lasts(None));
    (decision, next)
}

/// Whether no level that counts refuses.
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
    let place = plan.state_of(index);
    let room = states.has_place(place) || states.reserve(1);
    if room {
        states.put(place, state, reset_after);
    }
    room
}

pub(crate) fn no_room(decision: &Decision) -> Decision {
    let next_after = Some(RETRY_WHEN_FULL);
    Decision { next_after, ..Decision::refuse(decision.limit, 0, Some(RETRY_WHEN_FULL), 0) }
}
