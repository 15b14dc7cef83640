//! Sweeps drop expired states: periodically, with inserts, and first of all when the store is full.

use std::sync::atomic::Ordering;

use super::{MemoryStore, eviction::Guards, shard::Shard};
use weir_core::domain::{Clock, Micros};

/// States that a sweep examines while it holds a shard's lock.
const SWEEP_SLICE: usize = 1_024;
/// Number of shards that a plan searches for expired states in a full store, if there are more than
/// [`FULL_SEARCH_MAX_SHARDS`].
pub(super) const MAX_SHARDS_SEARCHED: usize = 256;
/// Largest number of shards for which all are searched: the shards of a store for thirteen million states.
const FULL_SEARCH_MAX_SHARDS: usize = 4_096;
/// Most shards of which a slice is swept in one search. Shards without expired states do not count.
const MAX_SHARDS_SWEPT: usize = 16;
/// Longest pause (10 ms) after a search of all shards that has not freed capacity.
const SEARCH_PAUSE: Micros = 10_000;

impl<C: Clock> MemoryStore<C> {
    /// Drops expired states in the next `shards` shards, in slices, so that no lock is held for more than microseconds.
    /// Called periodically to free the memory of unused keys.
    pub fn sweep(&self, shards: usize) {
        let now = self.clock.now();
        for _ in 0..shards.min(self.shards.len()) {
            let index = self.next_swept.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            // Two rounds: the first one finds the next expiry, on which the second one relies.
            let slices = 2 * (self.shards[index].lock().len() / SWEEP_SLICE + 1);
            for _ in 0..slices {
                let mut shard = self.shards[index].lock();
                self.sweep_shard(&mut shard, SWEEP_SLICE, now);
                if shard.next_expiry() > now {
                    break;
                }
            }
        }
    }

    /// Returns the number of shards, for [`MemoryStore::sweep`].
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Examines `count` states of a shard and drops the expired ones.
    pub(super) fn sweep_shard(&self, shard: &mut Shard, count: usize, now: Micros) {
        let dropped = self.change(shard, 0, |shard| shard.sweep(count, now));
        if dropped > 0 {
            self.expired.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    /// Drops expired states to free capacity: in the shards that the plan has locked, then in others that are not
    /// locked. After a search of all shards that has not freed any, the next one waits for the next expiry that it has
    /// seen, but at most [`SEARCH_PAUSE`].
    pub(super) fn sweep_when_full(&self, guards: &mut Guards<'_>, missing: usize, now: Micros) {
        // A pause that ends later is from before the clock stepped back.
        if (1..=SEARCH_PAUSE).contains(&self.next_search.load(Ordering::Relaxed).saturating_sub(now)) {
            return;
        }
        let mut next = now + SEARCH_PAUSE;
        for (_, shard) in guards.iter_mut() {
            self.sweep_shard(shard, SWEEP_SLICE, now);
            next = next.min(shard.next_expiry());
        }
        let mut sweeps = MAX_SHARDS_SWEPT;
        let shards = self.shards.len();
        let tries = if shards <= FULL_SEARCH_MAX_SHARDS { shards } else { MAX_SHARDS_SEARCHED };
        let start = self.next_swept.load(Ordering::Relaxed);
        for offset in 0..tries {
            if sweeps == 0 || self.keys.load(Ordering::Relaxed) + missing <= self.settings.max_keys {
                return;
            }
            self.next_swept.fetch_add(1, Ordering::Relaxed);
            let Some(mut shard) = self.shards[(start + offset) % shards].try_lock() else { continue };
            if shard.next_expiry() <= now {
                self.sweep_shard(&mut shard, SWEEP_SLICE, now);
                sweeps -= 1;
            }
            next = next.min(shard.next_expiry());
        }
        if tries == shards {
            self.next_search.store(next, Ordering::Relaxed);
        }
    }
}
