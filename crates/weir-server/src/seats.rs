//! The open connections of a listener. When all seats are taken, a connection without requests in flight is evicted for
//! a new one.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Use};

/// Maximum number of connections that are inspected for an idle one, which bounds the cost of each connection of a
/// flood.
const MAX_LOOKS: usize = 64;

/// Returns the maximum number of open connections for `max_connections` seats: evicted connections may still be
/// closing.
pub const fn max_open(max_connections: usize) -> usize {
    max_connections.saturating_add(max_connections / 8 + 64)
}

/// A bounded number of seats.
#[derive(Debug)]
pub(crate) struct Seats {
    max_seats: usize,
    taken: Mutex<Taken>,
    /// Evicted connections that are still open.
    ending: AtomicUsize,
}

#[derive(Debug, Default)]
struct Taken {
    /// The connections, in the order of inspection.
    seats: BTreeMap<u64, Arc<Occupant>>,
    next: u64,
}

/// A connection that has a seat.
#[derive(Debug)]
struct Occupant {
    activity: Arc<Activity>,
    evicted: CancellationToken,
    number: AtomicU64,
}

/// One seat, freed on drop.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    occupant: Arc<Occupant>,
}

impl Seats {
    /// Makes this many seats.
    pub(crate) fn new(max_seats: usize) -> Arc<Self> {
        Arc::new(Self { max_seats, taken: Mutex::default(), ending: AtomicUsize::new(0) })
    }

    /// Takes a seat for a connection. If none is free, a connection without requests in flight is evicted, preferably
    /// one that was not used since its last inspection (second chance, which approximates least recently used). `None`:
    /// all inspected connections have requests in flight.
    pub(crate) fn take(self: &Arc<Self>, activity: Arc<Activity>) -> Option<Seat> {
        let mut taken = self.taken.lock();
        if taken.seats.len() >= self.max_seats {
            if self.max_seats + self.ending.load(Ordering::Relaxed) >= max_open(self.max_seats) {
                return None;
            }
            taken.evict_idle()?;
            self.ending.fetch_add(1, Ordering::Relaxed);
        }
        let occupant = Arc::new(Occupant { activity, evicted: CancellationToken::new(), number: AtomicU64::new(0) });
        taken.seat(Arc::clone(&occupant));
        drop(taken);
        Some(Seat { seats: Arc::clone(self), occupant })
    }
}

impl Taken {
    /// Puts a connection last in the order.
    fn seat(&mut self, occupant: Arc<Occupant>) {
        occupant.number.store(self.next, Ordering::Relaxed);
        self.seats.insert(self.next, occupant);
        self.next += 1;
    }

    fn evict_idle(&mut self) -> Option<()> {
        let mut used_before = None;
        for _ in 0..MAX_LOOKS.min(self.seats.len()) {
            let (_, first) = self.seats.pop_first()?;
            match first.activity.take_use() {
                Use::Idle => {
                    first.evicted.cancel();
                    return Some(());
                }
                Use::SinceLast if used_before.is_none() => used_before = Some(self.next),
                Use::SinceLast | Use::UnderWay => {}
            }
            self.seat(first);
        }
        self.seats.remove(&used_before?)?.evicted.cancel();
        Some(())
    }
}

impl Seat {
    /// Waits until the connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.occupant.evicted.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        taken.seats.remove(&self.occupant.number.load(Ordering::Relaxed));
        drop(taken);
        if self.occupant.evicted.is_cancelled() {
            self.seats.ending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(seats: &Arc<Seats>) -> Option<(Seat, Arc<Activity>)> {
        let activity = Arc::new(Activity::new(false));
        seats.take(Arc::clone(&activity)).map(|seat| (seat, activity))
    }

    fn evicted(seats: &[&(Seat, Arc<Activity>)]) -> Vec<bool> {
        seats.iter().map(|(seat, _)| seat.occupant.evicted.is_cancelled()).collect()
    }

    #[test]
    fn idle_connections_are_evicted_and_used_ones_get_a_second_chance() {
        let seats = Seats::new(3);
        seats.ending.store(max_open(3) - 4, Ordering::Relaxed);
        let [busy, used, silent] = [(); 3].map(|()| take(&seats).unwrap());
        let under_way = busy.1.begin();
        drop(used.1.begin());
        let new = take(&seats).unwrap();
        assert_eq!(evicted(&[&busy, &used, &silent, &new]), [false, false, true, false]);
        assert!(take(&seats).is_none(), "the one that gives its seat up is not gone");
        drop(silent);
        let newer = take(&seats).unwrap();
        assert_eq!(
            evicted(&[&busy, &used, &new, &newer]).iter().filter(|gone| **gone).count(),
            1,
            "the busy one is not"
        );
        assert!(!evicted(&[&busy])[0]);
        drop((under_way, busy, used, new, newer));
        assert!(seats.taken.lock().seats.is_empty());
        assert_eq!(seats.ending.load(Ordering::Relaxed), max_open(3) - 4);
    }

    #[test]
    fn new_connections_are_refused_when_all_are_busy() {
        let seats = Seats::new(2);
        let all = [(); 2].map(|()| take(&seats).unwrap());
        let busy = all.each_ref().map(|(_, activity)| activity.begin());
        assert!(take(&seats).is_none());
        drop(busy);
        assert!(take(&seats).is_some(), "used, but nothing is under way");
    }
}
