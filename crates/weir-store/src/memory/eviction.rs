//! Eviction and rejection in a full store: first expired states are dropped, then the `when_full` rule applies.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};

use super::{MemoryStore, SWEEP_SLICE, locked_plan::LocatedState, shard::Shard};
use weir_core::domain::{Clock, Micros};

/// Number of shards that a plan searches for expired states in a full store, if there are more than
/// [`FULL_SEARCH_MAX_SHARDS`].
const MAX_SHARDS_SEARCHED: usize = 256;
/// Largest number of shards for which all are searched: that of a store for thirteen million states.
const FULL_SEARCH_MAX_SHARDS: usize = 4_096;
/// Most shards of which a slice is swept in one search. Shards without expired states do not count.
const MAX_SHARDS_SWEPT: usize = 16;
/// Shards sampled to find the fullest for an eviction, besides those that the plan has locked.
const SHARDS_SAMPLED: usize = 4;
/// States of that shard that are sampled.
const STATES_SAMPLED: usize = 32;

/// The rule for a request that needs a new state when no expired state makes room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Refuses the request. No live state is dropped.
    #[default]
    Deny,
    /// Allows the request if its limits would allow a new key, without storing its state.
    Allow,
    /// Evicts a live state: the one that expires first in a sample.
    Evict,
}

impl WhenFull {
    /// Returns the name in settings and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Evict => "evict",
        }
    }
}

type Guards<'a> = [(usize, MutexGuard<'a, Shard>)];

impl<C: Clock> MemoryStore<C> {
    /// Drops expired states to make room: in the shards that the plan has locked, then in others that are not locked.
    pub(super) fn sweep_when_full(&self, guards: &mut Guards<'_>, missing: usize, now: Micros) {
        if self.next_expiry.none_expired(now) {
            return;
        }
        let scan = self.next_expiry.start_scan();
        let mut next = Micros::MAX;
        for (_, shard) in guards.iter_mut() {
            self.sweep_shard(shard, SWEEP_SLICE, now);
            next = next.min(shard.next_expiry());
        }
        let (mut sweeps, mut searched) = (MAX_SHARDS_SWEPT, guards.len());
        let shards = self.shards.len();
        let tries = if shards <= FULL_SEARCH_MAX_SHARDS { shards } else { MAX_SHARDS_SEARCHED };
        let start = self.next_swept.load(Ordering::Relaxed);
        for offset in 0..tries {
            if sweeps == 0 || self.keys.load(Ordering::Relaxed) + missing <= self.settings.max_keys {
                break;
            }
            self.next_swept.fetch_add(1, Ordering::Relaxed);
            let Some(mut shard) = self.shards[(start + offset) % shards].try_lock() else { continue };
            searched += 1;
            if shard.next_expiry() <= now {
                self.sweep_shard(&mut shard, SWEEP_SLICE, now);
                sweeps -= 1;
            }
            next = next.min(shard.next_expiry());
        }
        if let Some(scan) = scan
            && searched == shards
        {
            scan.raise_to(next);
        }
    }

    /// Reserves capacity for `count` entries, or none.
    pub(super) fn reserve_capacity(&self, count: usize) -> bool {
        let room = |keys: usize| Some(keys + count).filter(|keys| *keys <= self.settings.max_keys);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    /// Reserves capacity for up to `count` entries and returns how many.
    pub(super) fn reserve_up_to(&self, count: usize) -> usize {
        (0..count).take_while(|_| self.reserve_capacity(1)).count()
    }

    /// Evicts the live state that expires first in a sample. The sample is taken from the fullest of a few shards, so
    /// that many keys below one anchor evict each other first. States that the plan itself has found are spared.
    /// Returns `false` if nothing could be evicted.
    pub(super) fn evict(&self, locked: &mut Guards<'_>, found: &[LocatedState]) -> bool {
        let turn = self.next_evicted.fetch_add(1, Ordering::Relaxed);
        let shards = self.shards.len();
        let others = (0..shards.min(MAX_SHARDS_SEARCHED))
            .filter_map(|offset| self.shards[(turn + offset) % shards].try_lock())
            .filter(|shard| shard.len() > 0)
            .take(SHARDS_SAMPLED);
        let other = others.max_by_key(|shard| shard.len());
        let most = other.as_ref().map_or(0, |shard| shard.len());
        let mut evict_locked = |least: usize| {
            let full = locked.iter_mut().enumerate().filter(|(_, (_, shard))| shard.len() >= least);
            let mut full = full.map(|(guard, (_, shard))| {
                let spared = |slot| found.iter().any(|found| found.guard == guard && found.slot == Some(slot));
                self.evict_from(shard, turn, spared)
            });
            full.any(|evicted| evicted)
        };
        let evicted = evict_locked(most.max(1))
            || other.is_some_and(|mut shard| self.evict_from(&mut shard, turn, |_| false))
            || evict_locked(1);
        self.evicted.fetch_add(usize::from(evicted), Ordering::Relaxed);
        evicted
    }

    fn evict_from(&self, shard: &mut Shard, turn: usize, spared: impl Fn(usize) -> bool) -> bool {
        self.change(shard, 0, |shard| shard.evict(turn, STATES_SAMPLED, spared))
    }
}
