//! Eviction and rejection in a full store: first expired states are dropped, then the `when_full` rule applies.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};

use super::{MemoryStore, SWEEP_SLICE, shard::Shard, view::Found};
use weir_core::domain::{Clock, Micros};

/// Number of shards that a plan searches for expired states in a full store, if there are more than
/// [`ALL_SHARDS_SEEN`].
const SHARDS_SEEN_WHEN_FULL: usize = 256;
/// Largest number of shards for which all are searched: that of a store for thirteen million states.
const ALL_SHARDS_SEEN: usize = 4_096;
/// Most shards of which a slice is swept in one search. Shards without expired states do not count.
const SHARDS_SWEPT_WHEN_FULL: usize = 16;
/// Shards sampled to find the fullest for an eviction, besides those that the plan has locked.
const SHARDS_COMPARED: usize = 4;
/// States of that shard that are sampled.
const STATES_COMPARED: usize = 32;

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
        if self.horizon.is_beyond(now) {
            return;
        }
        let raise = self.horizon.start_scan();
        let mut next = Micros::MAX;
        for (_, shard) in guards.iter_mut() {
            self.sweep_shard(shard, SWEEP_SLICE, now);
            next = next.min(shard.next_expiry());
        }
        let (mut sweeps, mut seen) = (SHARDS_SWEPT_WHEN_FULL, guards.len());
        let shards = self.shards.len();
        let tries = if shards <= ALL_SHARDS_SEEN { shards } else { SHARDS_SEEN_WHEN_FULL };
        let start = self.next_swept.load(Ordering::Relaxed);
        for offset in 0..tries {
            if sweeps == 0 || self.keys.load(Ordering::Relaxed) + missing <= self.settings.max_keys {
                break;
            }
            self.next_swept.fetch_add(1, Ordering::Relaxed);
            let Some(mut shard) = self.shards[(start + offset) % shards].try_lock() else { continue };
            seen += 1;
            if shard.next_expiry() <= now {
                self.sweep_shard(&mut shard, SWEEP_SLICE, now);
                sweeps -= 1;
            }
            next = next.min(shard.next_expiry());
        }
        if let Some(raise) = raise
            && seen == shards
        {
            raise.to(next);
        }
    }

    /// Reserves capacity for `count` entries, or none.
    pub(super) fn take_room(&self, count: usize) -> bool {
        let room = |keys: usize| Some(keys + count).filter(|keys| *keys <= self.settings.max_keys);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    /// Reserves capacity for up to `count` entries and returns how many.
    pub(super) fn take_what_fits(&self, count: usize) -> usize {
        (0..count).take_while(|_| self.take_room(1)).count()
    }

    /// Evicts the live state that expires first in a sample. The sample is taken from the fullest of a few shards, so
    /// that many keys below one anchor evict each other first. States that the plan itself has found are spared.
    /// Returns `false` if nothing could be evicted.
    pub(super) fn evict(&self, held: &mut Guards<'_>, found: &[Found]) -> bool {
        let turn = self.next_evicted.fetch_add(1, Ordering::Relaxed);
        let shards = self.shards.len();
        let others = (0..shards.min(SHARDS_SEEN_WHEN_FULL))
            .filter_map(|offset| self.shards[(turn + offset) % shards].try_lock())
            .filter(|shard| shard.len() > 0)
            .take(SHARDS_COMPARED);
        let other = others.max_by_key(|shard| shard.len());
        let most = other.as_ref().map_or(0, |shard| shard.len());
        let mut evict_held = |least: usize| {
            let full = held.iter_mut().enumerate().filter(|(_, (_, shard))| shard.len() >= least);
            let mut full = full.map(|(guard, (_, shard))| {
                let spared = |slot| found.iter().any(|found| found.guard == guard && found.slot == Some(slot));
                self.evict_from(shard, turn, spared)
            });
            full.any(|evicted| evicted)
        };
        let evicted = evict_held(most.max(1))
            || other.is_some_and(|mut shard| self.evict_from(&mut shard, turn, |_| false))
            || evict_held(1);
        self.evicted.fetch_add(usize::from(evicted), Ordering::Relaxed);
        evicted
    }

    fn evict_from(&self, shard: &mut Shard, turn: usize, spared: impl Fn(usize) -> bool) -> bool {
        self.change(shard, 0, |shard| shard.evict(turn, STATES_COMPARED, spared))
    }
}
