//! Puts the states and holds of a snapshot into the store.

use super::read::Parts;
use crate::memory::{
    MemoryStore,
    capacity::WORD_BYTES,
    locate::{hash, locate, shard_of},
    name::Name,
    shard_holds::ShardHolds,
};
use weir_core::{
    algorithm::State,
    domain::{Clock, Micros},
    plan::is_ident_of_policy,
};

impl<C: Clock> MemoryStore<C> {
    /// Restores a state from a snapshot; `words` is the length of its encoding. Of two with the same name, the later
    /// expiry wins. Returns `false` if the store is full.
    pub(super) fn put_back(&self, parts: &Parts<'_>, state: State, words: usize, expires: Micros) -> bool {
        let Parts { path, anchor_end, ident } = *parts;
        let mark_bytes = if is_ident_of_policy(ident) { 0 } else { words * WORD_BYTES };
        let location = locate(&self.hasher, path, anchor_end, ident, self.shards.len());
        let mut shard = self.shards[location.shard].lock();
        match shard.find(location.state, path, ident) {
            Some(slot) if shard.expires(slot) > expires => return true,
            Some(slot) => {
                shard.replace(slot, state, expires);
                self.change(&mut shard, 0, |shard| shard.resize(slot, mark_bytes));
            }
            None if self.reserve_capacity(1) => {
                let name = Name::new(path, ident);
                self.change(&mut shard, 1, |shard| shard.insert(location.state, name, state, expires, mark_bytes));
            }
            None => return false,
        }
        true
    }

    /// Restores a ledger or a record from a snapshot by `put`. Returns `false` if the store is full.
    pub(super) fn put_back_holds(&self, anchor_path: &[u8], put: impl FnOnce(&mut ShardHolds)) -> bool {
        let mut shard = self.shards[shard_of(hash(&self.hasher, anchor_path), self.shards.len())].lock();
        let fits = self.reserve_capacity(1);
        if fits {
            self.change(&mut shard, 1, |shard| put(shard.holds_mut()));
        }
        fits
    }
}
