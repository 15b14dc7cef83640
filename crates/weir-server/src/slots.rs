//! Slots for what has not shown yet that it is honest: a handshake, a silent connection, a call whose message has not come.
//! An honest client keeps such a slot for milliseconds, so where there are too many the oldest is evicted, not the newest.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A bounded set of slots. Each carries what its eviction hands on.
#[derive(Debug)]
pub struct Slots<T = ()> {
    max_slots: usize,
    taken: Mutex<Taken<T>>,
}

#[derive(Debug)]
struct Taken<T> {
    /// By their order.
    slots: BTreeMap<u64, (CancellationToken, T)>,
    next: u64,
}

/// One slot, free again when this is dropped.
#[derive(Debug)]
pub struct Slot<T = ()> {
    slots: Arc<Slots<T>>,
    number: u64,
    evicted: CancellationToken,
    kept: Mutex<Option<T>>,
}

impl<T> Slots<T> {
    /// At most so many.
    pub fn new(max_slots: usize) -> Arc<Self> {
        Arc::new(Self { max_slots, taken: Mutex::new(Taken { slots: BTreeMap::new(), next: 0 }) })
    }

    /// Takes a slot. Where none is free, the oldest is evicted and notified.
    pub fn take(self: &Arc<Self>, carried: T) -> (Slot<T>, Option<T>) {
        let evicted = CancellationToken::new();
        let mut taken = self.taken.lock();
        let handed_on = (taken.slots.len() >= self.max_slots).then(|| taken.evict_oldest()).flatten();
        let number = taken.next;
        taken.next += 1;
        taken.slots.insert(number, (evicted.clone(), carried));
        drop(taken);
        (Slot { slots: Arc::clone(self), number, evicted, kept: Mutex::default() }, handed_on)
    }

    /// Evicts the oldest, where there is any; what it carried.
    pub fn evict_oldest(&self) -> Option<T> {
        self.taken.lock().evict_oldest()
    }
}

impl<T> Taken<T> {
    fn evict_oldest(&mut self) -> Option<T> {
        let (_, (evicted, carried)) = self.slots.pop_first()?;
        evicted.cancel();
        Some(carried)
    }
}

impl<T> Slot<T> {
    /// Leaves the set, unless it was evicted; what it carries stays with it until it is dropped.
    pub(crate) fn keep(&self) {
        let carried = self.slots.taken.lock().slots.remove(&self.number);
        if let Some((_, carried)) = carried {
            *self.kept.lock() = Some(carried);
        }
    }

    /// Waits until it is evicted.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let carried = self.slots.taken.lock().slots.remove(&self.number);
        // Dropped without the lock: what it carries may have a drop of its own.
        drop(carried);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted<T>(slots: &[&Slot<T>]) -> Vec<bool> {
        slots.iter().map(|slot| slot.evicted.is_cancelled()).collect()
    }

    #[test]
    fn the_oldest_is_evicted_and_hands_on_what_it_carried() {
        let slots = Slots::new(2);
        let ((first, _), (second, none)) = (slots.take('a'), slots.take('b'));
        assert_eq!((none, evicted(&[&first, &second])), (None, vec![false, false]));
        let (third, handed_on) = slots.take('c');
        assert_eq!((handed_on, evicted(&[&first, &second, &third])), (Some('a'), vec![true, false, false]));
        drop(second);
        let (fourth, none) = slots.take('d');
        assert_eq!((none, evicted(&[&third, &fourth])), (None, vec![false, false]), "there was room again");
        drop((first, third, fourth));
        assert!(slots.taken.lock().slots.is_empty());
    }

    #[test]
    fn what_is_kept_is_not_evicted_and_is_given_back_at_the_end() {
        let (slots, carried) = (Slots::new(usize::MAX), Arc::new(()));
        let (kept, _) = slots.take(Arc::clone(&carried));
        kept.keep();
        assert!(slots.evict_oldest().is_none() && evicted(&[&kept]) == [false]);
        assert_eq!(Arc::strong_count(&carried), 2);
        drop(kept);
        assert_eq!(Arc::strong_count(&carried), 1);
    }
}
