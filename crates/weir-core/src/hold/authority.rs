//! The authority: one step that decides a plan and serves the renewal sent with it.

use smallvec::SmallVec;

use super::{Grant, Ledger, MAX_HOLDS, MAX_LEASES_ABOVE, Renewal, RenewalTotals, ledger::RenewalKind};
use crate::{
    algorithm::{Spent, State},
    domain::{Decision, Micros, StepInput},
    plan::{Decisions, Level, Plan, States, decide, lasts, lifetime},
};

/// States whose units may be held. Indexes are those of [`Plan::state_of`].
pub trait Ledgers: States {
    /// Takes out a level's ledger, empty if nothing is held. It is put back before anything is decided.
    fn take_ledger(&mut self, index: usize) -> Ledger;

    /// Puts a ledger back. One without holds need not be stored.
    fn put_ledger(&mut self, index: usize, ledger: Ledger);

    /// Makes space for one more state by any means: its units were held and are settled.
    fn force_reserve(&mut self) {}

    /// Sets the expiry of a level's ledger to `reset_after` from now, in stores that expire by time.
    fn keep_ledger(&mut self, _index: usize, _reset_after: Micros) {}
}

/// Removes holds past their deadlines. Their units are burnt, which means that they count as spent at the deadline,
/// unless they are released. Must be called before anything is decided on levels with ledgers.
pub fn expire(plan: &Plan<'_>, states: &mut impl Ledgers, now: Micros) {
    for index in (0..plan.levels().len()).filter(|index| plan.state_of(*index) == *index) {
        let mut ledger = states.take_ledger(index);
        // Stored after all charges: in between, the state might seem to have expired.
        let (mut state, mut is_burnt) = (states.get(index).cloned(), false);
        while let Some(hold) = ledger.take_expired(now) {
            if hold.units > 0 && !hold.id.is_released() {
                state = charged(plan, index, state, Spent::held(hold.units), hold.deadline);
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

/// Settles the renewal, decides the plan, and grants the wanted units as far as they are free, on
/// all levels or on none. The plan must be [`Plan::is_holdable`].
pub fn renew(plan: &Plan<'_>, states: &mut impl Ledgers, now: Micros, renewal: &Renewal) -> (Decisions, Grant) {
    expire(plan, states, now);
    let (kind, has_settled) = settle(plan, states, now, renewal);
    let decisions = decide(plan, states, now);
    let settled = match kind {
        RenewalKind::New => RenewalTotals { burnt: renewal.kept, ..RenewalTotals::default() },
        RenewalKind::Next { settled, .. } => settled,
        RenewalKind::Idle | RenewalKind::Repeated { .. } | RenewalKind::Stale => RenewalTotals::default(),
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
    let grant = match kind {
        RenewalKind::Stale => Grant { is_kept: false, ..nothing },
        RenewalKind::Repeated { granted, is_kept } => Grant { units: granted, is_kept, ..nothing },
        RenewalKind::New | RenewalKind::Next { .. } | RenewalKind::Idle => {
            let free = decisions.iter().map(|decision| decision.remaining).min().unwrap_or(0);
            let units = grant(plan, states, free, now, renewal);
            Grant {
                units,
                free: free - units,
                settled: RenewalTotals { granted: units, ..settled },
                is_kept: matches!(kind, RenewalKind::Next { is_kept: true, .. } | RenewalKind::Idle),
                is_recalled: renewal.kept > 0 && decisions.iter().any(is_above),
                refused_for: refused_for(states, &decisions, renewal),
                ..nothing
            }
        }
    };
    // A state may have been charged under a factor, for a longer time than the limit itself would
    // keep it. A level may have settled units that the first one had settled before.
    if has_settled || grant.settled.granted > 0 {
        (0..plan.levels().len()).for_each(|index| remember(plan, states, index, now));
    }
    (decisions, grant)
}

/// Settles the renewal on all levels. They are renewed together, so the result of the first applies to all, unless
/// one of them was full when the hold started. Returns also whether any ledger has changed.
fn settle(plan: &Plan<'_>, states: &mut impl Ledgers, now: Micros, renewal: &Renewal) -> (RenewalKind, bool) {
    let (mut first, mut has_settled) = (None, false);
    for index in 0..plan.levels().len() {
        let mut ledger = states.take_ledger(index);
        let kind = ledger.settle(renewal, now);
        states.put_ledger(index, ledger);
        has_settled |= matches!(kind, RenewalKind::Next { .. });
        if let RenewalKind::Next { settled: RenewalTotals { spent: spent @ 1.., .. }, held, .. } = kind {
            let state = charged(plan, index, states.get(index).cloned(), Spent { units: spent, held }, now);
            put(plan, states, index, state, now);
        }
        first.get_or_insert(kind);
    }
    (first.unwrap_or(RenewalKind::Stale), has_settled)
}

/// Grants at most a share of the free units, to leave units for later requests, but at least one if
/// any is free.
fn grant(plan: &Plan<'_>, states: &mut impl Ledgers, free: u64, now: Micros, renewal: &Renewal) -> u64 {
    if free.min(renewal.want) == 0 {
        return 0;
    }
    let mut ledgers: SmallVec<[Ledger; 4]> = (0..plan.levels().len()).map(|index| states.take_ledger(index)).collect();
    let holders = ledgers.iter().map(|ledger| ledger.holders(renewal.id)).max().unwrap_or(1);
    let units = renewal.want.min((free / (2 * holders)).max(1));
    let deepest = plan.levels().last().map(Level::path);
    let leases_below = ledgers.last().map_or(0, Ledger::leases);
    let has_capacity = ledgers.iter().zip(plan.levels()).all(|(ledger, level)| {
        let max = if Some(level.path()) == deepest { MAX_HOLDS } else { MAX_LEASES_ABOVE + leases_below };
        ledger.has_capacity(renewal.id, max)
    });
    for (index, mut ledger) in ledgers.drain(..).enumerate() {
        if has_capacity {
            ledger.grant(renewal, units, now);
        }
        states.put_ledger(index, ledger);
    }
    if has_capacity { units } else { 0 }
}

/// Stores a level's state for as long as it may matter to outstanding units, which may be charged at their deadline.
pub(super) fn remember(plan: &Plan<'_>, states: &mut impl Ledgers, index: usize, now: Micros) {
    let reset_after = lifetime(plan, states, index, now);
    if let Some(state) = states.get(index).cloned() {
        let lasts = lasts(&plan.levels()[index].base(), &state, reset_after, now);
        states.put(index, state, lasts);
    }
    states.keep_ledger(index, reset_after);
}

/// Returns the time until units become free without a reset or a refund, on levels where only these
/// could free them earlier. At most the TTL of the hold, within which these take effect.
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

/// Whether a level is above its limit: even cost 0 is refused.
fn is_above(decision: &Decision) -> bool {
    !decision.allowed
}

/// Returns a level's state with units charged at the time `at`. Slots are not
/// charged: they count only while held.
pub(super) fn charged(plan: &Plan<'_>, index: usize, state: Option<State>, spent: Spent, at: Micros) -> Option<State> {
    let level = &plan.levels()[index];
    if level.limit.params.as_concurrency().is_some() {
        return state;
    }
    level.base().charge(state.as_ref(), spent, at, level.phase()).or(state)
}

pub(super) fn put(plan: &Plan<'_>, states: &mut impl Ledgers, index: usize, state: Option<State>, now: Micros) {
    let Some(state) = state else { return };
    let level = &plan.levels()[index];
    let peek = StepInput { now, cost: 0, max_wait: None, phase: level.phase() };
    let reset_after = level.base().step(Some(&state), &peek).0.reset_after;
    let state_index = plan.state_of(index);
    if !states.has_entry(state_index) {
        // The units were granted, so they must count, also in a full store.
        states.force_reserve();
    }
    let lasts = lasts(&level.base(), &state, reset_after, now);
    states.put(state_index, state, lasts);
}
