//! One shard: states in a row, and a table of hashes that finds them.

use hashbrown::HashTable;

use super::{name::Name, row::Row};
use crate::{
    algorithm::State,
    domain::{Micros, key::END},
};

/// A part of the store's states. The table holds positions in `slots`; a removed slot's place is taken by the last one.
#[derive(Default)]
pub struct Shard {
    table: HashTable<u32>,
    slots: Row<Slot>,
    /// Where the next sweep of a few goes on.
    hand: usize,
    /// No state expires before.
    next_expiry: Micros,
}

struct Slot {
    name: Name,
    state: State,
    expires: Micros,
    hash: u32,
}

/// The table takes its tag from the upper bits, so the 32 bits of a hash are spread over 64.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Shard {
    /// The slot of the state with this name, given in its two parts.
    pub fn find(&self, hash: u32, path: &[u8], ident: &[u8]) -> Option<usize> {
        let is = |slot: &u32| {
            let slot = &self.slots[*slot as usize];
            slot.hash == hash && slot.name.bytes().strip_prefix(path).is_some_and(|rest| rest == ident)
        };
        self.table.find(spread(hash), is).map(|slot| *slot as usize)
    }

    /// What a slot holds.
    pub fn state(&self, slot: usize) -> &State {
        &self.slots[slot].state
    }

    /// Changes what a slot holds.
    pub fn replace(&mut self, slot: usize, state: State, expires: Micros) {
        let slot = &mut self.slots[slot];
        slot.state = state;
        slot.expires = expires;
        self.next_expiry = self.next_expiry.min(expires);
    }

    /// Adds a state whose name is not there yet, and tells its slot.
    pub fn insert(&mut self, hash: u32, name: Name, state: State, expires: Micros) -> usize {
        let slot = self.slots.len();
        self.next_expiry = if slot == 0 { expires } else { self.next_expiry.min(expires) };
        self.slots.push(Slot { name, state, expires, hash });
        let slots = &self.slots;
        self.table.insert_unique(spread(hash), slot as u32, |slot| spread(slots[*slot as usize].hash));
        slot
    }

    /// Drops every expired state, and tells how many. Costs nothing while none can have expired.
    pub fn sweep(&mut self, now: Micros) -> usize {
        if self.slots.len() == 0 || self.next_expiry > now {
            return 0;
        }
        let before = self.slots.len();
        let mut next = Micros::MAX;
        let mut slot = 0;
        while slot < self.slots.len() {
            let expires = self.slots[slot].expires;
            if expires <= now {
                self.remove(slot);
            } else {
                next = next.min(expires);
                slot += 1;
            }
        }
        self.next_expiry = next;
        if self.slots.len() < self.table.capacity() / 4 {
            let slots = &self.slots;
            self.table.shrink_to(slots.len() * 2, |slot| spread(slots[*slot as usize].hash));
        }
        before - self.slots.len()
    }

    /// Drops what has expired of the next `count` states, and tells how many.
    pub fn sweep_some(&mut self, count: usize, now: Micros) -> usize {
        let before = self.slots.len();
        for _ in 0..count {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            match self.slots.get(self.hand) {
                Some(slot) if slot.expires <= now => self.remove(self.hand),
                _ => self.hand += 1,
            }
        }
        before - self.slots.len()
    }

    /// Drops every state of exactly the key `path`, and with `subtree` those below it: how many, and whether one of the
    /// key itself had not expired.
    pub fn reset(&mut self, path: &[u8], subtree: bool, now: Micros) -> (usize, bool) {
        let (before, mut live) = (self.slots.len(), false);
        let mut slot = 0;
        while slot < self.slots.len() {
            let Slot { name, expires, .. } = &self.slots[slot];
            match name.bytes().strip_prefix(path).and_then(<[u8]>::first) {
                Some(&END) => {
                    live |= *expires > now;
                    self.remove(slot);
                }
                Some(_) if subtree => self.remove(slot),
                _ => slot += 1,
            }
        }
        (before - self.slots.len(), live)
    }

    fn remove(&mut self, slot: usize) {
        let last = self.slots.len() - 1;
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
