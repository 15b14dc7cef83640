//! The authority: one step that decides a plan and serves the renewal that came with it.

use smallvec::SmallVec;

use super::{Grant, Ledger, MAX_HOLDS, Renewal, Settled, ledger::Renewed};
use crate::{
    algorithm::State,
    domain::{Ask, Decision, Micros},
    plan::{Decisions, Plan, States, decide, matters_for, put_if_room},
};

/// States of which units may be held. Indexes are those of [`Plan::state_of`].
pub trait Ledgers: States {
    /// Takes a level's ledger out; an empty one where nothing is held. It is put back before anything is decided.
    fn take_ledger(&mut self, index: usize) -> Ledger;

    /// Puts a ledger back. One without holds need not be remembered.
    fn put_ledger(&mut self, index: usize, ledger: Ledger);

    /// Makes room for one more state, wherever it comes from: one of which units were held and are settled.
    fn force_room(&mut self) {}

    /// A level's ledger means nothing any more `reset_after` from now. For those that forget by time.
    fn keep_ledger(&mut self, _index: usize, _reset_after: Micros) {}
}

/// Burns what is held beyond its deadline: it counts as spent at that moment. To be called before anything is decided on
/// levels that have ledgers.
pub fn expire(plan: &Plan<'_>, states: &mut impl Ledgers, now: Micros) {
    for index in (0..plan.levels().len()).filter(|index| plan.state_of(*index) == *index) {
        let mut ledger = states.take_ledger(index);
        // Put when all is charged: between, it might seem to mean nothing any more.
        let (mut state, mut is_burnt) = (states.get(index).cloned(), false);
        while let Some(hold) = ledger.take_expired(now) {
            if hold.units > 0 && !hold.id.is_released() {
                state = charged(plan, index, state, hold.units, hold.deadline);
                is_burnt = true;
            }
        }
        states.put_ledger(index, ledger);
        if is_burnt {
            put(plan, states, index, state, now);
            remember(plan, states, index, now);
        }
    }
}

/// Settles the renewal, decides the plan, and grants what the renewal asks for as far as that is free: on all levels or on
/// none. Only for a plan that [`Plan::is_holdable`].
pub fn renew(plan: &Plan<'_>, states: &mut impl Ledgers, now: Micros, renewal: &Renewal) -> (Decisions, Grant) {
    expire(plan, states, now);
    let standing = settle(plan, states, now, renewal);
    let decisions = decide(plan, states, now);
    let settled = match standing {
        Renewed::New => Settled { burnt: renewal.kept, ..Settled::default() },
        Renewed::Next { settled, .. } => settled,
        Renewed::Again { .. } | Renewed::Overtaken => Settled::default(),
    };
    let nothing = Grant {
        sequence: renewal.sequence,
        units: 0,
        free: 0,
        is_kept: true,
        is_recalled: false,
        refused_for: 0,
        settled,
    };
    let grant = match standing {
        Renewed::Overtaken => Grant { is_kept: false, ..nothing },
        Renewed::Again { granted, is_kept } => Grant { units: granted, is_kept, ..nothing },
        Renewed::New | Renewed::Next { .. } => {
            let free = decisions.iter().map(|decision| decision.remaining).min().unwrap_or(0);
            let units = grant(plan, states, free, now, renewal);
            (0..plan.levels().len()).for_each(|index| remember(plan, states, index, now));
            Grant {
                units,
                free: free - units,
                settled: Settled { granted: units, ..settled },
                is_kept: matches!(standing, Renewed::Next { is_kept: true, .. }),
                is_recalled: renewal.kept > 0 && decisions.iter().any(is_above),
                refused_for: refused_for(states, &decisions, renewal),
                ..nothing
            }
        }
    };
    (decisions, grant)
}

/// What all levels say of the renewal: they are renewed together, so the first speaks for all, unless one of them was
/// full when the hold began.
fn settle(plan: &Plan<'_>, states: &mut impl Ledgers, now: Micros, renewal: &Renewal) -> Renewed {
    let mut first = None;
    for index in 0..plan.levels().len() {
        let mut ledger = states.take_ledger(index);
        let standing = ledger.settle(renewal, now);
        states.put_ledger(index, ledger);
        if let Renewed::Next { settled: Settled { spent: spent @ 1.., .. }, .. } = standing {
            let state = charged(plan, index, states.get(index).cloned(), spent, now);
            put(plan, states, index, state, now);
        }
        first.get_or_insert(standing);
    }
    first.unwrap_or(Renewed::Overtaken)
}

/// At most a share of what is free, so that it lasts for those who ask next; but a unit where there is one.
fn grant(plan: &Plan<'_>, states: &mut impl Ledgers, free: u64, now: Micros, renewal: &Renewal) -> u64 {
    if free.min(renewal.want) == 0 {
        return 0;
    }
    let mut ledgers: SmallVec<[Ledger; 4]> = (0..plan.levels().len()).map(|index| states.take_ledger(index)).collect();
    let holders = ledgers.iter().map(|ledger| ledger.holders(renewal.id)).max().unwrap_or(1);
    let units = renewal.want.min((free / (2 * holders)).max(1));
    let has_room = ledgers.iter().all(|ledger| ledger.has_room(renewal.id, MAX_HOLDS));
    for (index, mut ledger) in ledgers.drain(..).enumerate() {
        if has_room {
            ledger.grant(renewal, units, now);
        }
        states.put_ledger(index, ledger);
    }
    if has_room { units } else { 0 }
}

/// Remembers a level's state for as long as it may matter to what is outstanding, which may be charged at its deadline.
pub(super) fn remember(plan: &Plan<'_>, states: &mut impl Ledgers, index: usize, now: Micros) {
    let reset_after = matters_for(plan, states, index, now);
    if let Some(state) = states.get(index).cloned() {
        states.put(index, state, reset_after);
    }
    states.keep_ledger(index, reset_after);
}

/// Until time has made room, where nothing else can make it but a reset or a refund, which show within the time of a hold.
fn refused_for(states: &mut impl Ledgers, decisions: &Decisions, renewal: &Renewal) -> Micros {
    let mut longest = 0;
    for (index, decision) in decisions.iter().enumerate() {
        let Some(retry_after) = decision.retry_after else { continue };
        let ledger = states.take_ledger(index);
        if ledger.outstanding_of_others(renewal.id) == 0 {
            longest = longest.max(retry_after.min(renewal.ttl));
        }
        states.put_ledger(index, ledger);
    }
    longest
}

/// Whether a level stands above its limit: not even nothing passes.
fn is_above(decision: &Decision) -> bool {
    !decision.allowed
}

/// A level's state with units charged at the moment `at`. A slot that is not held any more counts for nothing.
pub(super) fn charged(plan: &Plan<'_>, index: usize, state: Option<State>, units: u64, at: Micros) -> Option<State> {
    let level = &plan.levels()[index];
    if level.limit.params.as_concurrency().is_some() {
        return state;
    }
    level.limit.params.charge(state.as_ref(), units, at, level.phase()).or(state)
}

pub(super) fn put(plan: &Plan<'_>, states: &mut impl Ledgers, index: usize, state: Option<State>, now: Micros) {
    let Some(state) = state else { return };
    let level = &plan.levels()[index];
    let peek = Ask { now, cost: 0, max_wait: None, phase: level.phase() };
    let reset_after = level.limit.params.step(Some(&state), &peek).0.reset_after;
    if !put_if_room(plan, states, index, state.clone(), reset_after) {
        // It was granted, so it counts.
        states.force_room();
        states.put(plan.state_of(index), state, reset_after);
    }
}
