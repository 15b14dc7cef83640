//! The lifetime of a connection: it is closed without a first request, when idle, when evicted, or at its maximum age.

use std::{sync::Arc, time::Duration};

use futures_util::future::OptionFuture;
use tokio::time::{Instant, sleep_until};

use weir_settings::Time;

use crate::{Traffic, activity::Activity, connection_slots::ConnectionSlot};

/// Timeout for the first request of a connection.
pub(crate) const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Jitter of the maximum age, as a fraction of it, so that connections of one moment do not reconnect in one moment.
const JITTER: f64 = 0.1;

/// Why a connection is closed gracefully.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The service drains.
    Drain,
    /// Its client certificate is no longer accepted.
    Revoked,
    /// It never sent a request.
    Silent,
    /// A new connection needed its slot, and its client had not authenticated, or had nothing in flight.
    Evicted,
    /// Its client left too many answers unread.
    Unread,
    /// Its client reset too many calls as soon as they were made.
    RapidReset,
    /// It has been idle for too long.
    Idle,
    /// It has reached its maximum age.
    Age,
}

/// The lifetime of a connection.
pub(crate) struct Lifetime {
    started: Instant,
    age: Option<Duration>,
    idle_timeout: Option<Duration>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) slot: Arc<ConnectionSlot>,
}

impl Lifetime {
    /// Makes the lifetime of a new connection.
    pub(crate) fn new(traffic: &Traffic, activity: Arc<Activity>, slot: Arc<ConnectionSlot>) -> Self {
        let bound = |time: Time| (time.0 > 0).then(|| time.duration());
        Self {
            started: Instant::now(),
            age: bound(traffic.max_connection_age).map(jittered),
            idle_timeout: bound(traffic.idle_timeout),
            activity,
            slot,
        }
    }

    /// Whether a connection that closes for this reason has nothing in flight that must be completed. A client that has
    /// not authenticated has at most the answers to probes and the like, which it may leave unread.
    pub(crate) fn has_nothing_to_complete(&self, why: CloseReason) -> bool {
        match why {
            CloseReason::Revoked => true,
            CloseReason::Evicted | CloseReason::Drain => !self.activity.is_kept(),
            _ => !self.activity.has_requests(),
        }
    }

    /// Waits until the connection must be closed, and returns why.
    pub(crate) async fn over(&self) -> CloseReason {
        loop {
            let now = Instant::now();
            let end = match self.next_end(now) {
                Some((at, why)) if at <= now => return why,
                next => next.map(|(at, _)| sleep_until(at)),
            };
            tokio::select! {
                () = self.slot.evicted() => return CloseReason::Evicted,
                Some(()) = OptionFuture::from(end) => {}
            }
        }
    }

    /// Returns the next time at which the connection may be over, with the reason.
    fn next_end(&self, now: Instant) -> Option<(Instant, CloseReason)> {
        let requests = self.activity.has_requests();
        let silent = (!requests).then(|| (self.started + FIRST_REQUEST_TIMEOUT, CloseReason::Silent));
        let old = self.age.map(|age| {
            // While it does not age this is only the time of the next evaluation.
            let since = if self.activity.is_ageless() { now } else { self.started };
            (since + age, CloseReason::Age)
        });
        let idle = self.idle_timeout.map(|timeout| {
            // Before the first request this is only the time of the next evaluation.
            let since = if requests { self.activity.idle_since(now) } else { now };
            (since + timeout, CloseReason::Idle)
        });
        [silent, old, idle].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

/// Returns the age with a jitter of a tenth in either direction.
fn jittered(age: Duration) -> Duration {
    age.mul_f64(rand::random_range(1.0 - JITTER..=1.0 + JITTER))
}

#[cfg(test)]
mod tests {
    use hyper::Version;
    use metrics::Gauge;

    use super::*;
    use crate::connection_slots::ConnectionSlots;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lifetime(age: i64, idle: i64) -> Lifetime {
        let (max_connection_age, idle_timeout) = (Time::seconds(age), Time::seconds(idle));
        let activity = Arc::new(Activity::new(true));
        let slot = ConnectionSlots::new(1, Gauge::noop()).take(Arc::clone(&activity)).unwrap();
        Lifetime::new(&Traffic { max_connection_age, idle_timeout, ..Traffic::default() }, activity, slot)
    }

    /// Returns when and why it is over, evaluated from `since` on at the times that `next_end` returns.
    fn over(lifetime: &Lifetime, since: Instant) -> Option<(CloseReason, Duration)> {
        let mut now = since;
        for _ in 0..1_000 {
            let (at, why) = lifetime.next_end(now)?;
            if at <= now {
                return Some((why, now - since));
            }
            now = at;
        }
        None
    }

    #[test]
    fn maximum_ages_are_jittered_by_up_to_ten_percent() {
        let ages: Vec<_> = (0..1_000).map(|_| jittered(seconds(1_000)).as_millis()).collect();
        let (least, most) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!((900_000..=920_000).contains(least) && (1_080_000..=1_100_000).contains(most), "{least} to {most}");
        let sooner = ages.iter().filter(|age| **age < 1_000_000).count();
        assert!((350..=650).contains(&sooner), "{sooner} of 1000 are below the middle");
    }

    #[test]
    fn connections_without_a_request_are_closed_after_30_seconds() {
        for idle in [0, 1] {
            let silent = lifetime(0, idle);
            assert_eq!(over(&silent, silent.started), Some((CloseReason::Silent, FIRST_REQUEST_TIMEOUT)));
        }
    }

    #[test]
    fn active_connections_are_closed_only_at_their_maximum_age() {
        let old = lifetime(100, 0);
        assert!(old.activity.note_request(Version::HTTP_11) && old.activity.is_http1());
        assert!(!old.activity.note_request(Version::HTTP_2) && !old.activity.is_http1());
        let (why, after) = over(&old, old.started).unwrap();
        assert!(why == CloseReason::Age && (90..=110).contains(&after.as_secs()), "{why:?} after {after:?}");
        let ageless = lifetime(0, 0);
        ageless.activity.note_request(Version::HTTP_2);
        assert_eq!(over(&ageless, ageless.started), None);
        let kept = old.activity.keep_from_aging();
        assert_eq!(over(&old, old.started), None);
        drop(kept);
        assert_eq!(over(&old, old.started), Some((why, after)));
    }

    #[test]
    fn idle_connections_are_closed_unless_a_request_is_in_flight() {
        let idle = lifetime(0, 10);
        idle.activity.note_request(Version::HTTP_2);
        let activity = Arc::clone(&idle.activity);
        let started = activity.started();
        let [_first, _second] = [false, true].map(|keeps| std::mem::ManuallyDrop::new(activity.begin(keeps)));
        assert_eq!(over(&idle, started), None);
        activity.ended(true, started + seconds(50));
        assert_eq!(over(&idle, started + seconds(50)), None);
        activity.ended(false, started + seconds(60));
        assert_eq!(over(&idle, started + seconds(60)), Some((CloseReason::Idle, seconds(10))));
        drop(activity.begin(true));
        assert!(
            idle.next_end(started + seconds(65)).is_some_and(|(at, _)| at == started + seconds(70)),
            "time goes on"
        );
    }

    #[test]
    fn an_eviction_completes_only_requests_that_keep_the_connection() {
        let lifetime = lifetime(0, 0);
        lifetime.activity.note_request(Version::HTTP_2);
        let _watch = lifetime.activity.begin(false);
        assert!(lifetime.has_nothing_to_complete(CloseReason::Evicted));
        let check = lifetime.activity.begin(true);
        assert!(!lifetime.has_nothing_to_complete(CloseReason::Evicted));
        drop(check);
        assert!(lifetime.has_nothing_to_complete(CloseReason::Evicted));
    }

    #[test]
    fn a_connection_idle_after_a_late_first_request_is_closed() {
        let idle = lifetime(0, 1);
        let started = idle.started;
        assert_eq!(idle.next_end(started), Some((started + seconds(1), CloseReason::Idle)), "when to look again");
        idle.activity.note_request(Version::HTTP_2);
        let activity = Arc::clone(&idle.activity);
        std::mem::forget(activity.begin(true));
        activity.ended(true, activity.started() + seconds(9));
        assert_eq!(over(&idle, activity.started() + seconds(9)), Some((CloseReason::Idle, seconds(1))));
    }
}
