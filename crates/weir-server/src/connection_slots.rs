//! The open connections of a listener. When all slots are taken, a connection without requests in flight is evicted for
//! a new one.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use metrics::Gauge;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Use};

/// Maximum number of connections that are inspected for an idle one, which bounds the cost of each connection of a
/// flood.
const MAX_INSPECTED: usize = 64;

/// Returns the maximum number of open connections for `max_connections` slots: evicted connections may still be
/// closing.
pub const fn max_open(max_connections: usize) -> usize {
    max_connections.saturating_add(max_connections / 8 + 64)
}

/// A bounded number of slots.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    max_slots: usize,
    taken: Mutex<Taken>,
    /// Evicted connections that are still open.
    ending: AtomicUsize,
    /// The metric of open connections.
    open: Gauge,
}

#[derive(Debug, Default)]
struct Taken {
    /// The connections, in the order of inspection.
    slots: BTreeMap<u64, Arc<Occupant>>,
    next: u64,
}

/// A connection that has a slot.
#[derive(Debug)]
struct Occupant {
    activity: Arc<Activity>,
    evicted: CancellationToken,
    number: AtomicU64,
}

/// One slot, freed on drop.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    occupant: Arc<Occupant>,
}

impl ConnectionSlots {
    /// Makes this many slots; those taken are counted in `open`.
    pub(crate) fn new(max_slots: usize, open: Gauge) -> Arc<Self> {
        Arc::new(Self { max_slots, taken: Mutex::default(), ending: AtomicUsize::new(0), open })
    }

    /// Takes a slot for a connection. If none is free, a connection without requests in flight is evicted, preferably
    /// one that was not used since its last inspection (second chance, which approximates least recently used). `None`:
    /// all inspected connections have requests in flight.
    pub(crate) fn take(self: &Arc<Self>, activity: Arc<Activity>) -> Option<ConnectionSlot> {
        let mut taken = self.taken.lock();
        if taken.slots.len() >= self.max_slots {
            if self.max_slots + self.ending.load(Ordering::Relaxed) >= max_open(self.max_slots) {
                return None;
            }
            taken.evict_idle()?;
            self.ending.fetch_add(1, Ordering::Relaxed);
        }
        let occupant = Arc::new(Occupant { activity, evicted: CancellationToken::new(), number: AtomicU64::new(0) });
        taken.insert(Arc::clone(&occupant));
        drop(taken);
        self.open.increment(1.0);
        Some(ConnectionSlot { slots: Arc::clone(self), occupant })
    }
}

impl Taken {
    /// Puts a connection last in the order.
    fn insert(&mut self, occupant: Arc<Occupant>) {
        occupant.number.store(self.next, Ordering::Relaxed);
        self.slots.insert(self.next, occupant);
        self.next += 1;
    }

    fn evict_idle(&mut self) -> Option<()> {
        let mut used_before = None;
        for _ in 0..MAX_INSPECTED.min(self.slots.len()) {
            let (_, first) = self.slots.pop_first()?;
            match first.activity.take_use() {
                Use::Idle => {
                    first.evicted.cancel();
                    return Some(());
                }
                Use::SinceLast if used_before.is_none() => used_before = Some(self.next),
                Use::SinceLast | Use::InFlight => {}
            }
            self.insert(first);
        }
        self.slots.remove(&used_before?)?.evicted.cancel();
        Some(())
    }
}

impl ConnectionSlot {
    /// Waits until the connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.occupant.evicted.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.open.decrement(1.0);
        let mut taken = self.slots.taken.lock();
        taken.slots.remove(&self.occupant.number.load(Ordering::Relaxed));
        drop(taken);
        if self.occupant.evicted.is_cancelled() {
            self.slots.ending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &Arc<ConnectionSlots>) -> Option<(ConnectionSlot, Arc<Activity>)> {
        let activity = Arc::new(Activity::new(false));
        slots.take(Arc::clone(&activity)).map(|slot| (slot, activity))
    }

    fn evicted(slots: &[&(ConnectionSlot, Arc<Activity>)]) -> Vec<bool> {
        slots.iter().map(|(slot, _)| slot.occupant.evicted.is_cancelled()).collect()
    }

    #[test]
    fn idle_connections_are_evicted_and_used_ones_get_a_second_chance() {
        let slots = ConnectionSlots::new(3, Gauge::noop());
        slots.ending.store(max_open(3) - 4, Ordering::Relaxed);
        let [busy, used, silent] = [(); 3].map(|()| take(&slots).unwrap());
        let in_flight = busy.1.begin();
        drop(used.1.begin());
        let new = take(&slots).unwrap();
        assert_eq!(evicted(&[&busy, &used, &silent, &new]), [false, false, true, false]);
        assert!(take(&slots).is_none(), "the one that gives its slot up is not gone");
        drop(silent);
        let newer = take(&slots).unwrap();
        assert_eq!(
            evicted(&[&busy, &used, &new, &newer]).iter().filter(|gone| **gone).count(),
            1,
            "the busy one is not"
        );
        assert!(!evicted(&[&busy])[0]);
        drop((in_flight, busy, used, new, newer));
        assert!(slots.taken.lock().slots.is_empty());
        assert_eq!(slots.ending.load(Ordering::Relaxed), max_open(3) - 4);
    }

    #[test]
    fn new_connections_are_refused_when_all_are_busy() {
        let slots = ConnectionSlots::new(2, Gauge::noop());
        let all = [(); 2].map(|()| take(&slots).unwrap());
        let busy = all.each_ref().map(|(_, activity)| activity.begin());
        assert!(take(&slots).is_none());
        drop(busy);
        assert!(take(&slots).is_some(), "used, but nothing is under way");
    }
}
