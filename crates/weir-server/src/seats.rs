//! The open connections of a listener. Where there are too many, one that has nothing in flight gives its seat to a new one.

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

/// How many connections are looked at for an idle one, so that a flood of new ones costs no more than that each.
const MAX_LOOKS: usize = 64;

/// How many connections can be open where `max_connections` have seats: some are still ending that have given theirs up.
pub const fn max_open(max_connections: usize) -> usize {
    max_connections.saturating_add(max_connections / 8 + 64)
}

/// A bounded number of seats.
#[derive(Debug)]
pub(crate) struct Seats {
    max_seats: usize,
    taken: Mutex<Taken>,
    /// Connections that have given up their seat and are not gone.
    ending: AtomicUsize,
}

#[derive(Debug, Default)]
struct Taken {
    /// In the order in which they are looked at.
    seats: BTreeMap<u64, Arc<Occupant>>,
    next: u64,
}

/// A connection.
#[derive(Debug)]
struct Occupant {
    activity: Arc<Activity>,
    evicted: CancellationToken,
    number: AtomicU64,
}

/// One seat, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    occupant: Arc<Occupant>,
}

impl Seats {
    /// At most so many.
    pub(crate) fn new(max_seats: usize) -> Arc<Self> {
        Arc::new(Self { max_seats, taken: Mutex::default(), ending: AtomicUsize::new(0) })
    }

    /// Takes a seat for a connection. Where there is none, one that has nothing in flight is evicted, if possible one that was not
    /// used since it was looked at last (second chance, which comes near to the least recently used). `None`: all that were looked
    /// at have requests in flight.
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
    /// Gives a connection the last place in the order.
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
    /// Waits until the connection has to give it up.
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
