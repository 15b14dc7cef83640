//! The memory store: states sharded by anchor, each plan decided while its shards are locked, without waiting for
//! anything else.

mod capacity;
mod chunked_vec;
mod eviction;
mod locate;
mod locked_plan;
mod name;
mod scan;
mod shard;
mod shard_holds;
pub mod snapshot;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use super::{Decide, Failure, ResetDone, Store, Verdict};
pub use capacity::{MemorySettings, WEIGHT_BYTES, weight};
pub use eviction::WhenFull;
use locate::hash;
use locked_plan::LockedPlan;
use shard::Shard;
use weir_core::{
    domain::{Clock, Key, Micros},
    hold::{self, Grant, Renewal, decide_with_holds},
    plan::{Decisions, Plan, decide_into},
};

/// Planned number of states per shard: few enough for a full scan within microseconds, and just below the 3,584 at
/// which its hash table doubles.
const STATES_A_SHARD: usize = 3_300;

/// A store in this process.
pub struct MemoryStore<C> {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: C,
    settings: MemorySettings,
    keys: AtomicUsize,
    capacity_misses: AtomicUsize,
    expired: AtomicUsize,
    evicted: AtomicUsize,
    left_out: AtomicUsize,
    next_swept: AtomicUsize,
    next_evicted: AtomicUsize,
    /// The time until which a full store is not searched for expired states, since all shards have just been searched.
    next_search: AtomicI64,
}

/// Statistics of a memory store since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// States held now, including expired ones that are not swept yet. Large ones count as in
    /// [`MemorySettings::max_keys`].
    pub keys: usize,
    /// Plans without capacity for a new state.
    pub capacity_misses: usize,
    /// States dropped after their expiry.
    pub expired: usize,
    /// States evicted before their expiry to free capacity ([`WhenFull::Evict`]).
    pub evicted: usize,
    /// States of a snapshot that did not fit.
    pub left_out: usize,
}

#[cold]
fn decide_with_held<C: Clock>(plan: &Plan<'_>, locked_plan: &mut LockedPlan<'_, '_, C>, verdict: &mut Verdict) {
    let (decisions, outcome, idempotency) = decide_with_holds(plan, locked_plan, verdict.at);
    (verdict.decisions, verdict.reservation, verdict.idempotency) = (decisions, outcome.map(Box::new), idempotency);
}

#[cold]
fn decide_and_renew<C: Clock>(
    plan: &Plan<'_>,
    locked_plan: &mut LockedPlan<'_, '_, C>,
    renewal: &Renewal,
    now: Micros,
) -> (Decisions, Grant) {
    locked_plan.will_hold();
    // New units need capacity for the hold on each level; earlier holds are settled in any case.
    let has_capacity = renewal.want == 0 || locked_plan.reserve_records(0..plan.levels().len(), 0);
    if !has_capacity && plan.renewal.is_none() {
        // No check comes with it that counts this.
        locked_plan.count_as_full();
    }
    let want = if has_capacity { renewal.want } else { 0 };
    // The check itself needs no more capacity than without a lease.
    locked_plan.release_records();
    hold::renew(plan, locked_plan, now, &Renewal { want, ..*renewal })
}

impl<C: Clock> MemoryStore<C> {
    /// Creates an empty store that uses `clock`.
    pub fn new(settings: MemorySettings, clock: C) -> Self {
        let shards = settings.max_keys.div_ceil(STATES_A_SHARD).clamp(64, 65_536);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            clock,
            settings,
            keys: AtomicUsize::new(0),
            capacity_misses: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
            evicted: AtomicUsize::new(0),
            left_out: AtomicUsize::new(0),
            next_swept: AtomicUsize::new(0),
            next_evicted: AtomicUsize::new(0),
            next_search: AtomicI64::new(Micros::MIN),
        }
    }

    /// Returns its statistics.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.keys.load(Ordering::Relaxed),
            capacity_misses: self.capacity_misses.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
        }
    }

    /// Decides a plan.
    #[inline]
    pub fn verdict(&self, plan: &Plan<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        self.decide_into(plan, &mut verdict);
        verdict
    }

    fn decide_into(&self, plan: &Plan<'_>, verdict: &mut Verdict) {
        let mut locked_plan = LockedPlan::new(self, plan);
        locked_plan.lock();
        verdict.at = locked_plan.read_states();
        if let Some(renewal) = plan.renewal {
            let (decisions, grant) = decide_and_renew(plan, &mut locked_plan, renewal, verdict.at);
            (verdict.decisions, verdict.grant) = (decisions, Some(Box::new(grant)));
        } else if locked_plan.look_for_holds() {
            decide_with_held(plan, &mut locked_plan, verdict);
        } else {
            decide_into(&mut verdict.decisions, plan, &mut locked_plan, verdict.at);
        }
        locked_plan.finish();
    }

    /// Serves a renewal; see [`Store::renew`].
    pub fn renew_now(&self, plan: &Plan<'_>, renewal: &Renewal) -> Grant {
        let mut locked_plan = LockedPlan::new(self, plan);
        locked_plan.lock();
        let now = locked_plan.read_states();
        let (_, grant) = decide_and_renew(plan, &mut locked_plan, renewal, now);
        locked_plan.finish();
        grant
    }

    /// Returns this store's clock.
    pub fn clock(&self) -> C
    where
        C: Clone,
    {
        self.clock.clone()
    }

    /// Returns the current time of this store's clock.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Deletes states; see [`Store::reset`].
    pub fn reset_now(&self, key: &Key, anchor: u8, subtree: bool) -> ResetDone {
        let depth = key.depth();
        let own = hash(&self.hasher, key.prefix(depth.min(usize::from(anchor))));
        let own_shard = locate::shard_of(own, self.shards.len());
        // The subtree of a key above the anchor has anchors in any shard.
        let everywhere = subtree && depth < usize::from(anchor);
        let mut done = ResetDone::default();
        for (index, shard) in self.shards.iter().enumerate() {
            if everywhere || index == own_shard {
                let mut shard = shard.lock();
                let now = self.clock.now();
                done |= self.change(&mut shard, 0, |shard| shard.reset(key.prefix(depth), subtree, now));
            }
        }
        done
    }

    /// Changes a shard and updates the capacity in use, of which `taken` is already reserved. The rest is added without
    /// a check: a plan with long names may exceed `max_keys`, and the next plan finds no free capacity.
    #[inline]
    fn change<T>(&self, shard: &mut Shard, taken: usize, change: impl FnOnce(&mut Shard) -> T) -> T {
        let before = shard.weight() + taken;
        let done = change(shard);
        let after = shard.weight();
        if after > before {
            self.keys.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            self.keys.fetch_sub(before - after, Ordering::Relaxed);
        }
        done
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    #[inline]
    fn decide<'s, 'v>(&'s self, plan: &Plan<'_>, verdict: &'v mut Verdict) -> Decide<'s, 'v> {
        self.decide_into(plan, verdict);
        Decide::Ready(verdict)
    }

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, Failure> {
        Ok(self.reset_now(key, anchor, subtree))
    }

    async fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Grant, Failure> {
        Ok(self.renew_now(plan, renewal))
    }
}
