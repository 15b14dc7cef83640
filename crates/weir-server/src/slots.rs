//! Slots for unfinished work that a client could hold open to abuse the service: a handshake, a call whose message has
//! not arrived. A well-behaved client holds such a slot for milliseconds. When all slots together are too large, the
//! oldest slot of the owner with the most is evicted, so that owners with many cannot take the slots of an owner with
//! few (max-min fairness).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// Slots with a bounded total size.
#[derive(Debug)]
pub struct Slots {
    max_size: usize,
    max_size_with_evicted: usize,
    next_owner: AtomicU64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    owners: HashMap<u64, Owned>,
    /// The owners, in the order of eviction, the next one last: by size, then by the age of their oldest slot.
    order: BTreeSet<(usize, Reverse<u64>, u64)>,
    size: usize,
    /// Total size, including evicted slots that have not been dropped yet.
    size_with_evicted: usize,
    next: u64,
}

/// The slots of one owner that are not evicted.
#[derive(Debug, Default)]
struct Owned {
    size: usize,
    /// The slots, oldest first.
    slots: BTreeMap<u64, (usize, CancellationToken)>,
}

/// One slot, freed on drop.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    owner: u64,
    number: u64,
    size: usize,
    evicted: CancellationToken,
}

/// The error when no slot is free: the owner has the most already, or evicted slots have not been dropped yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("all slots are taken")]
pub struct Full;

impl Slots {
    /// Makes slots of at most `max_size` together, and of at most `max_size_with_evicted` including evicted slots that
    /// have not been dropped yet.
    pub fn new(max_size: usize, max_size_with_evicted: usize) -> Arc<Self> {
        Arc::new(Self { max_size, max_size_with_evicted, next_owner: AtomicU64::new(0), taken: Mutex::default() })
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let Taken { owners, order, size, size_with_evicted, .. } = &*self.taken.lock();
        owners.is_empty() && order.is_empty() && *size == 0 && *size_with_evicted == 0
    }

    /// Returns the id of a new owner.
    pub fn owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a slot of this size, and evicts others if all are taken.
    ///
    /// # Errors
    /// [`Full`].
    pub fn take(self: &Arc<Self>, owner: u64, size: usize) -> Result<Slot, Full> {
        self.take_for(owner, size, CancellationToken::new())
    }

    /// Like [`Self::take`], for the only slot of an owner; `evicted` is cancelled when it is evicted.
    pub(crate) fn take_for(
        self: &Arc<Self>,
        owner: u64,
        size: usize,
        evicted: CancellationToken,
    ) -> Result<Slot, Full> {
        let mut taken = self.taken.lock();
        let owned = taken.owners.get(&owner).map_or(0, |owned| owned.size);
        let owners = taken.owners.len() + usize::from(owned == 0);
        // Reserved for owners within their share, so that others cannot use it up by being evicted.
        let reserve = if owned + size <= self.max_size / owners { 0 } else { self.reserve() };
        let has_most = owned > 0 && taken.order.last().is_some_and(|&(most, ..)| owned >= most);
        if taken.size_with_evicted + size + reserve > self.max_size_with_evicted
            || taken.size + size > self.max_size && has_most
        {
            return Err(Full);
        }
        let number = taken.next;
        taken.next += 1;
        taken.change(owner, |owned| {
            owned.size += size;
            owned.slots.insert(number, (size, evicted.clone()));
        });
        taken.size_with_evicted += size;
        taken.evict(self.max_size);
        drop(taken);
        Ok(Slot { slots: Arc::clone(self), owner, number, size, evicted })
    }

    fn reserve(&self) -> usize {
        (self.max_size_with_evicted - self.max_size) / 2
    }
}

impl Taken {
    fn change<T>(&mut self, owner: u64, change: impl FnOnce(&mut Owned) -> T) -> T {
        let owned = self.owners.entry(owner).or_default();
        self.order.remove(&owned.rank(owner));
        self.size -= owned.size;
        let changed = change(owned);
        self.size += owned.size;
        if owned.slots.is_empty() {
            self.owners.remove(&owner);
        } else {
            self.order.insert(owned.rank(owner));
        }
        changed
    }

    fn evict(&mut self, max_size: usize) {
        while self.size > max_size
            && let Some(&(.., owner)) = self.order.last()
        {
            self.change(owner, |owned| {
                if let Some((_, (size, evicted))) = owned.slots.pop_first() {
                    owned.size -= size;
                    evicted.cancel();
                }
            });
        }
    }
}

impl Owned {
    fn rank(&self, owner: u64) -> (usize, Reverse<u64>, u64) {
        let oldest = self.slots.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        (self.size, Reverse(oldest), owner)
    }
}

impl Slot {
    /// Makes the slot larger, and evicts others, or this one, if all are taken.
    ///
    /// # Errors
    /// [`Full`].
    pub fn grow(&mut self, more: usize) -> Result<(), Full> {
        self.resize(self.size + more)
    }

    /// Sets the size, like [`Self::grow`]. A smaller size always succeeds.
    pub(crate) fn resize(&mut self, size: usize) -> Result<(), Full> {
        let mut taken = self.slots.taken.lock();
        let size_with_evicted = taken.size_with_evicted - self.size + size;
        if size_with_evicted > self.slots.max_size_with_evicted {
            return Err(Full);
        }
        (self.size, taken.size_with_evicted) = (size, size_with_evicted);
        taken.change(self.owner, |owned| {
            if let Some((held, _)) = owned.slots.get_mut(&self.number) {
                owned.size = owned.size - *held + size;
                *held = size;
            }
        });
        taken.evict(self.slots.max_size);
        Ok(())
    }

    /// Returns the token that is cancelled once the slot is evicted.
    pub fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        taken.size_with_evicted -= self.size;
        taken.change(self.owner, |owned| {
            if let Some((size, _)) = owned.slots.remove(&self.number) {
                owned.size -= size;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> Vec<bool> {
        slots.into_iter().map(|slot| slot.evicted.is_cancelled()).collect()
    }

    #[test]
    fn among_equal_owners_the_oldest_slot_is_evicted() {
        let slots = Slots::new(2, 4);
        let mut taken: Vec<_> = (0..3).map(|owner| slots.take(owner, 1).unwrap()).collect();
        assert_eq!(evicted(&taken), [true, false, false]);
        drop(taken.remove(1));
        taken.push(slots.take(3, 1).unwrap());
        assert_eq!(evicted(&taken), [true, false, false], "there was room again");
        taken.clear();
        assert!(slots.is_empty());
    }

    #[test]
    fn the_owner_of_few_does_not_lose_them_to_owners_of_many() {
        let slots = Slots::new(10, 20);
        let few = slots.take(0, 1).unwrap();
        let many: Vec<_> = (0..9).map(|_| slots.take(1, 1).unwrap()).collect();
        assert_eq!(slots.take(1, 1).err(), Some(Full), "it has the most");
        let others: Vec<_> = (0..5).map(|_| slots.take(2, 1).unwrap()).collect();
        assert_eq!((evicted([&few]), evicted(&others)), (vec![false], vec![false; 5]));
        assert_eq!(evicted(&many), [true, true, true, true, true, false, false, false, false], "the oldest");
        assert_eq!(slots.take(2, 1).err(), Some(Full), "what is evicted is not gone, and it has more than its share");
        let more = slots.take(3, 1).unwrap();
        assert_eq!(evicted([&more, &few]), [false, false]);
        drop(many);
        assert!(slots.take(2, 1).is_ok());
    }

    #[test]
    fn a_slot_that_grows_makes_room_or_is_evicted() {
        let slots = Slots::new(10, 12);
        let (mut first, mut second) = (slots.take(0, 4).unwrap(), slots.take(1, 1).unwrap());
        second.grow(6).unwrap();
        assert_eq!(evicted([&first, &second]), [false, true], "it is the largest");
        assert_eq!(first.grow(2), Err(Full));
        drop(second);
        first.grow(4).unwrap();
        drop(first);
        assert_eq!(slots.taken.lock().size_with_evicted, 0);
    }
}
