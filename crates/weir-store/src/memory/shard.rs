//! One shard: states in a chunked vector, found through a hash table of slot indexes.

use hashbrown::HashTable;

use super::{chunked_vec::ChunkedVec, name::Name, shard_holds::ShardHolds, weight};
use crate::ResetDone;
use weir_core::{
    algorithm::State,
    domain::{Micros, key::END},
};

/// A part of the store's states. The table holds indexes of `slots`; removing a slot moves the last one into its place.
pub(super) struct Shard {
    table: HashTable<u32>,
    slots: ChunkedVec<Slot>,
    /// Capacity used by all states.
    weight: usize,
    /// Slot at which the next sweep continues.
    hand: usize,
    /// Least expiry of the states that the current sweep round has kept.
    passed: Micros,
    /// A lower bound for the expiry of all states.
    next_expiry: Micros,
    holds: Option<Box<ShardHolds>>,
}

struct Slot {
    name: Name,
    state: State,
    expires: Micros,
    hash: u32,
    weight: u32,
}

/// Spreads the 32 bits of a hash over 64, because the table takes its tags from the upper bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            slots: ChunkedVec::default(),
            weight: 0,
            hand: 0,
            passed: Micros::MAX,
            next_expiry: Micros::MAX,
            holds: None,
        }
    }
}

impl Shard {
    /// Returns the slot of the state with this name, given in its two parts.
    pub(super) fn find(&self, hash: u32, path: &[u8], ident: &[u8]) -> Option<usize> {
        let is = |slot: &u32| {
            let slot = &self.slots[*slot as usize];
            slot.hash == hash && slot.name.bytes().strip_prefix(path).is_some_and(|rest| rest == ident)
        };
        self.table.find(spread(hash), is).map(|slot| *slot as usize)
    }

    pub(super) fn state(&self, slot: usize) -> &State {
        &self.slots[slot].state
    }

    /// Returns the expiry of a slot's state.
    pub(super) fn expires(&self, slot: usize) -> Micros {
        self.slots[slot].expires
    }

    /// Iterates over the slots below `end` in descending order, with name, state and expiry.
    pub(super) fn below(&self, end: usize) -> impl Iterator<Item = (&[u8], &State, Micros)> {
        let slots = (0..end.min(self.len())).rev().map(|slot| &self.slots[slot]);
        slots.map(|Slot { name, state, expires, .. }| (name.bytes(), state, *expires))
    }

    pub(super) fn replace(&mut self, slot: usize, state: State, expires: Micros) {
        self.note_expiry(expires);
        let slot = &mut self.slots[slot];
        slot.state = state;
        slot.expires = expires;
    }

    /// Updates a slot's capacity after a limit in a request allowed it `mark_bytes` bytes of marks.
    pub(super) fn resize(&mut self, slot: usize, mark_bytes: usize) {
        let slot = &mut self.slots[slot];
        let weight = weight(slot.name.bytes().len() + mark_bytes);
        self.weight = self.weight + weight as usize - slot.weight as usize;
        slot.weight = weight;
    }

    /// Adds a state with a new name, for which a limit in the request allows `mark_bytes` bytes of marks. Returns its
    /// slot.
    pub(super) fn insert(&mut self, hash: u32, name: Name, state: State, expires: Micros, mark_bytes: usize) -> usize {
        self.note_expiry(expires);
        let slot = self.slots.len();
        let weight = weight(name.bytes().len() + mark_bytes);
        self.weight += weight as usize;
        self.slots.push(Slot { name, state, expires, hash, weight });
        let slots = &self.slots;
        self.table.insert_unique(spread(hash), slot as u32, |slot| spread(slots[*slot as usize].hash));
        slot
    }

    fn note_expiry(&mut self, expires: Micros) {
        self.passed = self.passed.min(expires);
        self.next_expiry = self.next_expiry.min(expires);
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of its states and answers.
    pub(super) fn evictable(&self) -> usize {
        self.len() + self.holds.as_ref().map_or(0, |holds| holds.answers())
    }

    /// Returns the capacity used by its states, ledgers and records.
    #[inline]
    pub(super) fn weight(&self) -> usize {
        self.weight + self.holds.as_ref().map_or(0, |holds| holds.weight())
    }

    /// Returns its ledgers and records, if any.
    #[inline]
    pub(super) fn holds(&self) -> Option<&ShardHolds> {
        self.holds.as_deref()
    }

    /// Returns its ledgers and records for a change, creating them if needed.
    pub(super) fn holds_mut(&mut self) -> &mut ShardHolds {
        self.holds.get_or_insert_default()
    }

    /// Returns a time before which nothing expires.
    pub(crate) fn next_expiry(&self) -> Micros {
        let states = if self.slots.len() == 0 { Micros::MAX } else { self.next_expiry };
        self.holds.as_ref().map_or(states, |holds| states.min(holds.next_sweep()))
    }

    /// Continues the sweep over at most `count` states, and the ledgers and records, and drops expired ones. Returns
    /// how many. Costs nothing while none can have expired.
    pub(super) fn sweep(&mut self, count: usize, now: Micros) -> usize {
        let dropped = self.holds.as_mut().map_or(0, |holds| holds.sweep(now));
        if self.holds.as_ref().is_some_and(|holds| holds.len() == 0) {
            self.holds = None;
        }
        let before = self.slots.len();
        for _ in 0..count {
            if self.next_expiry() > now {
                break;
            }
            match self.slots.get(self.hand) {
                Some(slot) if slot.expires <= now => self.remove(self.hand),
                Some(slot) => {
                    self.passed = self.passed.min(slot.expires);
                    self.hand += 1;
                }
                None => {
                    self.next_expiry = self.passed;
                    self.start_over();
                }
            }
        }
        self.shrink();
        dropped + before - self.slots.len()
    }

    /// Evicts the state that expires first of `count` states chosen by `turn`, except spared ones; or an answer, if
    /// there are more answers than states, or no other state. Returns `false` if there is neither.
    pub(super) fn evict(&mut self, turn: usize, count: usize, spared: impl Fn(usize) -> bool) -> bool {
        let has_more_answers = self.evictable() > 2 * self.len();
        (has_more_answers && self.evict_answer(count))
            || self.evict_state(turn, count, spared)
            || self.evict_answer(count)
    }

    fn evict_answer(&mut self, count: usize) -> bool {
        self.holds.as_mut().is_some_and(|holds| holds.evict_answer(count))
    }

    fn evict_state(&mut self, turn: usize, count: usize, spared: impl Fn(usize) -> bool) -> bool {
        let length = self.slots.len();
        let start = spread(turn as u32) as usize % length.max(1);
        let compared = (0..count.min(length)).map(|next| (start + next) % length).filter(|slot| !spared(*slot));
        let Some(first) = compared.min_by_key(|slot| self.slots[*slot].expires) else { return false };
        // The last slot moves into its place, which the sweep may have passed.
        self.passed = self.passed.min(self.slots[length - 1].expires);
        self.remove(first);
        self.shrink();
        true
    }

    fn start_over(&mut self) {
        self.hand = 0;
        self.passed = Micros::MAX;
    }

    fn shrink(&mut self) {
        if self.slots.len() < self.table.capacity() / 4 {
            let slots = &self.slots;
            self.table.shrink_to(slots.len() * 2, |slot| spread(slots[*slot as usize].hash));
        }
    }

    /// Drops every state of exactly the key `path`, and with `subtree` those below it. Returns whether any of them was
    /// unexpired. Unexpired holds remain until their deadline.
    pub(super) fn reset(&mut self, path: &[u8], subtree: bool, now: Micros) -> ResetDone {
        let before = self.slots.len();
        let mut done = self.holds.as_mut().map(|holds| holds.forget_expired(path, subtree, now)).unwrap_or_default();
        let mut slot = 0;
        while slot < self.slots.len() {
            let Slot { name, expires, .. } = &self.slots[slot];
            let is_live = *expires > now;
            match name.bytes().strip_prefix(path).and_then(<[u8]>::first) {
                Some(&END) => done.existed |= is_live,
                Some(_) if subtree => {}
                _ => {
                    slot += 1;
                    continue;
                }
            }
            done.removed |= is_live;
            self.remove(slot);
        }
        if self.slots.len() < before {
            // States have moved into slots that the sweep had passed.
            self.start_over();
            self.next_expiry = Micros::MIN;
            self.shrink();
        }
        done
    }

    fn remove(&mut self, slot: usize) {
        let last = self.slots.len() - 1;
        self.weight -= self.slots[slot].weight as usize;
        if let Ok(entry) = self.table.find_entry(spread(self.slots[slot].hash), |at| *at as usize == slot) {
            entry.remove();
        }
        if slot != last
            && let Some(at) = self.table.find_mut(spread(self.slots[last].hash), |at| *at as usize == last)
        {
            *at = slot as u32;
        }
        self.slots.swap_remove(slot);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{super::WEIGHT_BYTES, *};
    use weir_core::{
        algorithm::{Bounds, find},
        domain::StepInput,
    };

    fn a_state() -> State {
        let entry = find("fixed_window").unwrap();
        let params = (entry.parse)(entry.examples[0], &Bounds::default()).unwrap();
        params.step(None, &StepInput { now: 0, cost: 1, max_wait: None, phase: 0 }).1.unwrap()
    }

    #[test]
    fn the_next_expiry_includes_states_moved_behind_the_sweep() {
        let mut shard = Shard::default();
        for (key, expires) in [100, 200, 300, 5, 50].into_iter().enumerate() {
            shard.insert(key as u32, Name::new(&[key as u8], &[END]), a_state(), expires, 0);
        }
        // A full round, and two slots more.
        assert_eq!(shard.sweep(8, 5), 1);
        assert_eq!((shard.hand, shard.next_expiry()), (2, 5));
        assert!(shard.evict(0, 4, |slot| slot != 0));
        assert_eq!(shard.sweep(2, 5), 0);
        assert_eq!((shard.hand, shard.next_expiry()), (0, 50));
    }

    proptest! {
        /// Against a model map of expiries: stored states are found, a sweep drops only expired states, and a full
        /// round drops all of them.
        #[test]
        fn behaves_like_a_map_with_expiry(events in prop::collection::vec((0..7u8, 0..40u8, 0..100i64), 1..300)) {
            let (mut shard, mut model) = (Shard::default(), BTreeMap::new());
            for (number, (what, key, time)) in events.into_iter().enumerate() {
                let (path, hash, now) = ([key / 10, key], u32::from(key % 7), number as Micros);
                let mark_bytes = WEIGHT_BYTES / 8 * time as usize;
                match what {
                    0..=2 => {
                        let expires = now + time;
                        match shard.find(hash, &path, &[END]) {
                            Some(slot) => {
                                shard.replace(slot, a_state(), expires);
                                shard.resize(slot, mark_bytes);
                            }
                            None => drop(shard.insert(hash, Name::new(&path, &[END]), a_state(), expires, mark_bytes)),
                        }
                        model.insert(path, (expires, weight(path.len() + 1 + mark_bytes)));
                    }
                    3 => {
                        let dropped = shard.sweep(usize::from(key), now);
                        let before = model.len();
                        model.retain(|path, _| shard.find(u32::from(path[1] % 7), path, &[END]).is_some());
                        prop_assert_eq!(before - model.len(), dropped);
                    }
                    4 => {
                        let is_live = model.remove(&path).is_some_and(|(expires, _)| expires > now);
                        let done = ResetDone { existed: is_live, removed: is_live, scanned: false };
                        prop_assert_eq!(shard.reset(&path, false, now), done);
                    }
                    5 => {
                        let spared = shard.find(hash, &path, &[END]);
                        let before = model.len();
                        let evicted = shard.evict(number, usize::from(key), |slot| Some(slot) == spared);
                        model.retain(|path, _| shard.find(u32::from(path[1] % 7), path, &[END]).is_some());
                        prop_assert_eq!(before - model.len(), usize::from(evicted));
                        prop_assert!(evicted || usize::from(spared.is_some()) == before || key < 2);
                        prop_assert_eq!(shard.find(hash, &path, &[END]).is_some(), spared.is_some());
                    }
                    _ => {
                        let removed = model.iter().any(|(path, (expires, _))| path[0] == key / 10 && *expires > now);
                        model.retain(|path, _| path[0] != key / 10);
                        let done = ResetDone { existed: false, removed, scanned: false };
                        prop_assert_eq!(shard.reset(&path[..1], true, now), done);
                    }
                }
                let alive = model.iter().filter(|(_, (expires, _))| *expires > now);
                for (path, _) in alive {
                    prop_assert!(shard.find(u32::from(path[1] % 7), path, &[END]).is_some());
                }
                if shard.next_expiry() > now {
                    prop_assert!(model.values().all(|(expires, _)| *expires > now));
                }
                prop_assert_eq!(shard.len(), model.len());
                prop_assert_eq!(shard.weight(), model.values().map(|(_, weight)| *weight as usize).sum::<usize>());
            }
            let now = 1_000;
            while shard.next_expiry() <= now {
                shard.sweep(5, now);
            }
            prop_assert_eq!(shard.len(), 0);
        }
    }
}
