//! The rule for a full store, and eviction.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};

use super::{MemoryStore, locked_plan::LocatedState, shard::Shard, sweep::MAX_SHARDS_SEARCHED};
use weir_core::domain::Clock;

/// Shards sampled to find the fullest for an eviction, in addition to the shards that the plan has locked.
const SHARDS_SAMPLED: usize = 4;
/// States of that shard that are sampled.
const STATES_SAMPLED: usize = 32;

/// The rule for a request that needs a new state when no expired state frees capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Refuses the request. No live state is dropped.
    #[default]
    Deny,
    /// Allows the request if its limits would allow a new key, without storing its state.
    Allow,
    /// Evicts a live state: the one that expires first in a sample. Or an answer to a request with an id.
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

pub(super) type Guards<'a> = [(usize, MutexGuard<'a, Shard>)];

impl<C: Clock> MemoryStore<C> {
    /// Evicts the live state that expires first in a sample, or an answer ([`Shard::evict`]). The sample is taken from the
    /// fullest of a few shards, so that many keys below one anchor evict each other first. States that the plan itself
    /// has found are spared. Returns `false` if nothing could be evicted.
    pub(super) fn evict(&self, locked: &mut Guards<'_>, found: &[LocatedState]) -> bool {
        let turn = self.next_evicted.fetch_add(1, Ordering::Relaxed);
        let shards = self.shards.len();
        let others = (0..shards.min(MAX_SHARDS_SEARCHED))
            .filter_map(|offset| self.shards[(turn + offset) % shards].try_lock())
            .filter(|shard| shard.evictable() > 0)
            .take(SHARDS_SAMPLED);
        let other = others.max_by_key(|shard| shard.evictable());
        let most = other.as_ref().map_or(0, |shard| shard.evictable());
        let mut evict_locked = |least: usize| {
            let full = locked.iter_mut().enumerate().filter(|(_, (_, shard))| shard.evictable() >= least);
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
