//! Slots for what has not shown yet that it is honest: a handshake, a call whose message has not come. An honest client keeps
//! such a slot for milliseconds, so where there are too many the oldest is evicted, not the newest.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A bounded set of slots.
#[derive(Debug)]
pub struct Slots {
    max_slots: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// By their order.
    slots: BTreeMap<u64, CancellationToken>,
    next: u64,
}

/// One slot, free again when this is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    number: u64,
    evicted: CancellationToken,
}

impl Slots {
    /// At most so many.
    pub fn new(max_slots: usize) -> Arc<Self> {
        Arc::new(Self { max_slots, taken: Mutex::default() })
    }

    /// Takes a slot. Where none is free, the oldest is evicted and notified.
    pub fn take(self: &Arc<Self>) -> Slot {
        let evicted = CancellationToken::new();
        let mut taken = self.taken.lock();
        if taken.slots.len() >= self.max_slots {
            taken.evict_oldest();
        }
        let number = taken.next;
        taken.next += 1;
        taken.slots.insert(number, evicted.clone());
        drop(taken);
        Slot { slots: Arc::clone(self), number, evicted }
    }

    /// Evicts the oldest, where there is any.
    pub fn evict_oldest(&self) {
        self.taken.lock().evict_oldest();
    }
}

impl Taken {
    fn evict_oldest(&mut self) {
        if let Some((_, evicted)) = self.slots.pop_first() {
            evicted.cancel();
        }
    }
}

impl Slot {
    /// Waits until it is evicted.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken.lock().slots.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted(slots: &[&Slot]) -> Vec<bool> {
        slots.iter().map(|slot| slot.evicted.is_cancelled()).collect()
    }

    #[test]
    fn the_oldest_slot_is_evicted_when_all_are_taken() {
        let slots = Slots::new(2);
        let [first, second] = [(); 2].map(|()| slots.take());
        assert_eq!(evicted(&[&first, &second]), [false, false]);
        let third = slots.take();
        assert_eq!(evicted(&[&first, &second, &third]), [true, false, false]);
        drop(second);
        let fourth = slots.take();
        assert_eq!(evicted(&[&third, &fourth]), [false, false], "there was room again");
        slots.evict_oldest();
        assert_eq!(evicted(&[&third, &fourth]), [true, false]);
        drop((first, third, fourth));
        assert!(slots.taken.lock().slots.is_empty());
    }
}
