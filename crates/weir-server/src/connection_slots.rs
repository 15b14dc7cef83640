//! The open connections of a listener. When all slots are taken, a connection is evicted for a new one: one whose client
//! has not authenticated, or one without requests in flight.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use metrics::Gauge;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Use};

/// Maximum number of connections that are inspected for an idle one, which bounds the cost of each connection of a
/// flood.
const MAX_INSPECTED: usize = 64;
/// Time for a new client to authenticate, before its connection is evicted rather than an idle one of another client.
const AUTHENTICATION_TIME: Duration = Duration::from_secs(1);

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
    /// The connections whose client has not authenticated, the oldest first.
    unauthenticated: BTreeMap<u64, Arc<Occupant>>,
    /// The others, in the order of inspection.
    authenticated: BTreeMap<u64, Arc<Occupant>>,
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

    /// Whether no slot is free.
    pub(crate) fn are_taken(&self) -> bool {
        self.taken.lock().len() >= self.max_slots
    }

    /// Takes a slot for a connection. If none is free, a connection is evicted. `None`: no inspected one may be.
    pub(crate) fn take(self: &Arc<Self>, activity: Arc<Activity>) -> Option<Arc<ConnectionSlot>> {
        let mut taken = self.taken.lock();
        if taken.len() >= self.max_slots {
            if self.max_slots + self.ending.load(Ordering::Relaxed) >= max_open(self.max_slots) {
                return None;
            }
            taken.evict(self.max_slots)?;
            self.ending.fetch_add(1, Ordering::Relaxed);
        }
        let occupant = Arc::new(Occupant { activity, evicted: CancellationToken::new(), number: AtomicU64::new(0) });
        taken.insert(Arc::clone(&occupant));
        drop(taken);
        self.open.increment(1.0);
        Some(Arc::new(ConnectionSlot { slots: Arc::clone(self), occupant }))
    }
}

impl Taken {
    fn len(&self) -> usize {
        self.unauthenticated.len() + self.authenticated.len()
    }

    /// Puts a connection last in the order of its kind.
    fn insert(&mut self, occupant: Arc<Occupant>) {
        occupant.number.store(self.next, Ordering::Relaxed);
        let is_authenticated = occupant.activity.is_authenticated();
        let same = if is_authenticated { &mut self.authenticated } else { &mut self.unauthenticated };
        same.insert(self.next, occupant);
        self.next += 1;
    }

    /// Evicts the oldest connection whose client has not authenticated, with or without requests in flight, which it
    /// could leave there. While these have at most half of the slots, one that is new is kept if another client's idle
    /// connection can be evicted: so they have time to authenticate, but cannot displace all others.
    fn evict(&mut self, max_slots: usize) -> Option<()> {
        let are_many = self.unauthenticated.len() > max_slots / 2;
        let least_age = if are_many { Duration::ZERO } else { AUTHENTICATION_TIME };
        self.evict_unauthenticated(least_age)
            .or_else(|| self.evict_idle())
            .or_else(|| self.evict_unauthenticated(Duration::ZERO))
    }

    fn evict_unauthenticated(&mut self, least_age: Duration) -> Option<()> {
        let oldest = self.unauthenticated.first_entry().filter(|oldest| oldest.get().activity.age() >= least_age)?;
        oldest.remove().evicted.cancel();
        Some(())
    }

    /// Evicts a connection without requests in flight of a client that has authenticated, preferably one that was not
    /// used since its last inspection (second chance, which approximates least recently used).
    fn evict_idle(&mut self) -> Option<()> {
        let mut used_before = None;
        for _ in 0..MAX_INSPECTED.min(self.authenticated.len()) {
            let (_, first) = self.authenticated.pop_first()?;
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
        self.authenticated.remove(&used_before?)?.evicted.cancel();
        Some(())
    }
}

impl ConnectionSlot {
    /// Waits until the connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.occupant.evicted.cancelled().await;
    }

    /// Whether so many evicted connections are still open that this one, if evicted, must end immediately.
    pub(crate) fn must_hurry(&self) -> bool {
        let Self { slots, .. } = self;
        slots.ending.load(Ordering::Relaxed) > (max_open(slots.max_slots) - slots.max_slots) / 2
    }

    /// Counts the connection among those whose client has authenticated, unless it is evicted by now.
    pub(crate) fn authenticated(&self) {
        let mut taken = self.slots.taken.lock();
        if let Some(occupant) = taken.unauthenticated.remove(&self.occupant.number.load(Ordering::Relaxed)) {
            taken.insert(occupant);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.open.decrement(1.0);
        let mut taken = self.slots.taken.lock();
        let number = self.occupant.number.load(Ordering::Relaxed);
        taken.unauthenticated.remove(&number).or_else(|| taken.authenticated.remove(&number));
        drop(taken);
        if self.occupant.evicted.is_cancelled() {
            self.slots.ending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::InFlight;

    type Taker = (Arc<ConnectionSlot>, Arc<Activity>);

    fn take(slots: &Arc<ConnectionSlots>) -> Option<Taker> {
        let activity = Arc::new(Activity::new(false));
        slots.take(Arc::clone(&activity)).map(|slot| (slot, activity))
    }

    /// Takes a slot for a client that authenticates immediately.
    fn take_authenticated(slots: &Arc<ConnectionSlots>) -> Option<Taker> {
        take(slots).inspect(|(slot, activity)| {
            assert!(activity.authenticate());
            slot.authenticated();
        })
    }

    /// Takes a slot for a client that leaves a request in flight.
    fn take_busy(slots: &Arc<ConnectionSlots>) -> (Taker, InFlight) {
        let taker = take(slots).unwrap();
        let in_flight = taker.1.begin(true);
        (taker, in_flight)
    }

    fn evicted<'a>(slots: impl IntoIterator<Item = &'a Taker>) -> Vec<bool> {
        slots.into_iter().map(|(slot, _)| slot.occupant.evicted.is_cancelled()).collect()
    }

    #[test]
    fn idle_connections_are_evicted_and_used_ones_get_a_second_chance() {
        let slots = ConnectionSlots::new(3, Gauge::noop());
        slots.ending.store(max_open(3) - 4, Ordering::Relaxed);
        let [busy, used, silent] = [(); 3].map(|()| take_authenticated(&slots).unwrap());
        for (_, activity) in [&busy, &used, &silent] {
            activity.take_use();
        }
        let in_flight = busy.1.begin(true);
        drop(used.1.begin(true));
        let new = take_authenticated(&slots).unwrap();
        assert_eq!(evicted([&busy, &used, &silent, &new]), [false, false, true, false]);
        assert!(take(&slots).is_none(), "the evicted connection is not closed yet");
        drop(silent);
        let newer = take_authenticated(&slots).unwrap();
        assert_eq!(evicted([&busy, &used, &new, &newer]), [false, true, false, false], "it had its second chance");
        drop((in_flight, busy, used, new, newer));
        let taken = slots.taken.lock();
        assert!(taken.authenticated.is_empty() && taken.unauthenticated.is_empty());
        drop(taken);
        assert_eq!(slots.ending.load(Ordering::Relaxed), max_open(3) - 4);
    }

    #[test]
    fn public_requests_do_not_keep_a_connection() {
        let slots = ConnectionSlots::new(1, Gauge::noop());
        let revoked = take_authenticated(&slots).unwrap();
        let _watch = revoked.1.begin(false);
        let _new = take(&slots).unwrap();
        assert_eq!(evicted([&revoked]), [true]);
    }

    #[test]
    fn new_connections_are_refused_when_all_are_busy() {
        let slots = ConnectionSlots::new(2, Gauge::noop());
        let all = [(); 2].map(|()| take_authenticated(&slots).unwrap());
        let busy = all.each_ref().map(|(_, activity)| activity.begin(true));
        assert!(take(&slots).is_none());
        drop(busy);
        assert!(take(&slots).is_some(), "used, but nothing is in flight");
    }

    #[test]
    fn requests_in_flight_protect_only_clients_that_have_authenticated() {
        let slots = ConnectionSlots::new(4, Gauge::noop());
        let [busy, idle] = [(); 2].map(|()| take_authenticated(&slots).unwrap());
        let _in_flight = busy.1.begin(true);
        let others: Vec<_> = (0..20).map(|_| take_busy(&slots)).collect();
        // They can take half of the slots, and one more.
        assert_eq!(evicted([&busy, &idle]), [false, true]);
        let (old, new) = others.split_at(17);
        assert!(evicted(old.iter().map(|(other, _)| other)).iter().all(|evicted| *evicted));
        assert_eq!(evicted(new.iter().map(|(other, _)| other)), [false; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn new_clients_have_time_to_authenticate() {
        let slots = ConnectionSlots::new(4, Gauge::noop());
        let idle = [(); 3].map(|()| take_authenticated(&slots).unwrap());
        let new = take(&slots).unwrap();
        let newer = take(&slots).unwrap();
        assert_eq!((evicted(&idle), evicted([&new])), (vec![true, false, false], vec![false]));
        tokio::time::advance(AUTHENTICATION_TIME).await;
        assert!(newer.1.authenticate());
        newer.0.authenticated();
        let newest = take(&slots).unwrap();
        assert_eq!(evicted([&new, &newer, &newest]), [true, false, false]);
        assert_eq!(evicted(&idle), [true, false, false]);
    }

    #[test]
    fn an_evicted_connection_has_no_slot_even_if_its_client_authenticates() {
        let slots = ConnectionSlots::new(1, Gauge::noop());
        let (old, _new) = (take(&slots).unwrap(), take(&slots).unwrap());
        assert!(!old.0.must_hurry() && old.1.authenticate());
        old.0.authenticated();
        assert!(slots.taken.lock().authenticated.is_empty());
        slots.ending.store((max_open(1) - 1) / 2 + 1, Ordering::Relaxed);
        assert!(old.0.must_hurry());
    }
}
