//! What a client does on a connection: whether it has authenticated, its protocol, its requests in flight, and its idle
//! time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper::Version;
use tokio::time::Instant;

/// Time that a client has to read an answer, which keeps the connection meanwhile; also the timeout of a write while the
/// socket's send buffer is full.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// No request yet, as a protocol.
const NOTHING: u8 = 0;
const HTTP_1: u8 = 1;
const HTTP_2: u8 = 2;

/// Whether the client of a connection has authenticated, the protocol of its last request, its requests in flight, and
/// the time since the last one.
#[derive(Debug)]
pub(crate) struct Activity {
    started: Instant,
    is_authenticated: AtomicBool,
    protocol: AtomicU8,
    /// Whether responses announce the end of the connection.
    is_last: AtomicBool,
    /// The number of all, and in units of [`KEEPING`] of those that keep the connection.
    in_flight: AtomicU64,
    /// Those of them that are answered and wait only for the client to read, in the same units.
    reading: AtomicU64,
    /// Time at which the last such answer was given, in microseconds since `started`.
    answered_at: AtomicU64,
    /// Whether a request that keeps the connection was made since the last [`Self::take_use`].
    was_used: AtomicBool,
    /// Whether [`Self::idle_since`] is recorded.
    is_timed: bool,
    /// Time at which the last request ended, in microseconds since `started`.
    idle_since: AtomicU64,
    /// Shared with each request in flight for which the connection does not age.
    ageless: Arc<()>,
}

/// Counts a request that keeps the connection: one whose client has authenticated for it, or need not. Not a public one,
/// such as a health watch: a client could hold it open after its credentials are revoked.
const KEEPING: u64 = 1 << 32;

/// The use of a connection by requests that keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Some are in flight.
    InFlight,
    /// None are in flight, but there were some since the last [`Activity::take_use`].
    SinceLast,
    /// None are in flight, and there were none since the last [`Activity::take_use`].
    Idle,
}

/// A request in flight, counted until this is dropped: keep it as long as the body of the answer.
#[derive(Debug)]
pub struct InFlight {
    activity: Arc<Activity>,
    keeps: bool,
    is_answered: bool,
}

impl Activity {
    /// Makes the activity of a new connection; `is_timed`: [`Self::idle_since`] is recorded.
    pub(crate) fn new(is_timed: bool) -> Self {
        let (is_authenticated, protocol, is_last) = Default::default();
        let (in_flight, reading, answered_at, idle_since, ageless) = Default::default();
        // Its first request is on its way.
        let (started, was_used) = (Instant::now(), AtomicBool::new(true));
        Self {
            started,
            is_authenticated,
            protocol,
            is_last,
            in_flight,
            reading,
            answered_at,
            was_used,
            is_timed,
            idle_since,
            ageless,
        }
    }

    /// Returns the time since the connection was accepted.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Records that the client has authenticated, or need not. `true`: it had not before.
    pub(crate) fn authenticate(&self) -> bool {
        !self.is_authenticated.swap(true, Ordering::Relaxed)
    }

    /// Whether the client has authenticated, or need not.
    #[inline]
    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Relaxed)
    }

    /// Records a request. `true`: HTTP/1, where only a response can announce the end of the connection.
    #[inline]
    pub(crate) fn note_request(&self, version: Version) -> bool {
        let protocol = if version < Version::HTTP_2 { HTTP_1 } else { HTTP_2 };
        self.protocol.store(protocol, Ordering::Relaxed);
        protocol == HTTP_1
    }

    /// Whether there was a request.
    pub(crate) fn has_requests(&self) -> bool {
        self.protocol.load(Ordering::Relaxed) != NOTHING
    }

    /// Whether requests use HTTP/1.
    pub(crate) fn is_http1(&self) -> bool {
        self.protocol.load(Ordering::Relaxed) == HTTP_1
    }

    /// Announces the end of the connection in each response from now on.
    pub(crate) fn announce_end(&self) {
        self.is_last.store(true, Ordering::Relaxed);
    }

    /// Whether responses announce the end of the connection.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Relaxed)
    }

    /// Counts the start of a request; `keeps`: it keeps the connection from being evicted.
    #[inline]
    pub(crate) fn begin(self: &Arc<Self>, keeps: bool) -> InFlight {
        self.in_flight.fetch_add(weight(keeps), Ordering::Relaxed);
        if keeps && !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        InFlight { activity: Arc::clone(self), keeps, is_answered: false }
    }

    /// Whether a request that keeps the connection is in flight. The last answers that the client has not read
    /// keep it for [`READ_TIMEOUT`].
    pub(crate) fn is_kept(&self) -> bool {
        let in_flight = self.in_flight.load(Ordering::Acquire) / KEEPING;
        let is_reading = || self.age() < self.read_until();
        in_flight > 0 && (in_flight > self.reading.load(Ordering::Acquire) / KEEPING || is_reading())
    }

    /// Returns the age until which unread answers keep the connection.
    fn read_until(&self) -> Duration {
        Duration::from_micros(self.answered_at.load(Ordering::Relaxed)) + READ_TIMEOUT
    }

    /// Keeps the connection from aging until the guard is dropped.
    pub(crate) fn keep_from_aging(&self) -> Arc<()> {
        Arc::clone(&self.ageless)
    }

    /// Whether a request keeps the connection from aging.
    pub(crate) fn is_ageless(&self) -> bool {
        Arc::strong_count(&self.ageless) > 1
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from((at - self.started).as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the use since the last call of this function.
    pub(crate) fn take_use(&self) -> Use {
        let was_used = self.was_used.swap(false, Ordering::Relaxed);
        match self.is_kept() {
            true => Use::InFlight,
            false if was_used => Use::SinceLast,
            false => Use::Idle,
        }
    }

    /// Counts the end of a request.
    pub(crate) fn ended(&self, keeps: bool, at: Instant) {
        self.idle_since.fetch_max(self.micros(at), Ordering::Relaxed);
        self.in_flight.fetch_sub(weight(keeps), Ordering::Release);
    }

    /// Returns the time since which no request is in flight; `now` while one is. Answers that the client leaves unread
    /// count until they keep the connection no more.
    pub(crate) fn idle_since(&self, now: Instant) -> Instant {
        let in_flight = self.in_flight.load(Ordering::Acquire) % KEEPING;
        if in_flight > self.reading.load(Ordering::Acquire) % KEEPING {
            return now;
        }
        let ended = Duration::from_micros(self.idle_since.load(Ordering::Relaxed));
        self.started + if in_flight > 0 { ended.max(self.read_until()) } else { ended }
    }

    #[cfg(test)]
    pub(crate) fn started(&self) -> Instant {
        self.started
    }
}

#[inline]
fn weight(keeps: bool) -> u64 {
    if keeps { KEEPING + 1 } else { 1 }
}

impl InFlight {
    /// Records that the request is answered, and in flight only until the client has read the answer.
    pub(crate) fn answered(mut self) -> Self {
        self.activity.answered_at.fetch_max(self.activity.micros(Instant::now()), Ordering::Relaxed);
        self.activity.reading.fetch_add(weight(self.keeps), Ordering::Release);
        self.is_answered = true;
        self
    }
}

impl Drop for InFlight {
    #[inline]
    fn drop(&mut self) {
        let Self { activity, keeps, is_answered } = self;
        if *is_answered {
            activity.reading.fetch_sub(weight(*keeps), Ordering::Release);
        }
        if activity.is_timed {
            activity.ended(*keeps, Instant::now());
        } else {
            activity.in_flight.fetch_sub(weight(*keeps), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_left_unread_keep_the_connection_for_30_seconds() {
        let activity = Arc::new(Activity::new(true));
        let sleep = async || tokio::time::sleep(READ_TIMEOUT * 2 / 3).await;
        let [first, second] = [(); 2].map(|()| activity.begin(true));
        let first = first.answered();
        sleep().await;
        sleep().await;
        assert!(activity.is_kept() && activity.idle_since(Instant::now()) == Instant::now(), "one is not answered");
        let kept_until = Instant::now() + READ_TIMEOUT;
        let second = second.answered();
        sleep().await;
        assert!(activity.is_kept() && activity.idle_since(Instant::now()) == kept_until);
        // It may be reset instead of read.
        drop(first);
        sleep().await;
        assert!(!activity.is_kept() && activity.idle_since(Instant::now()) == kept_until);
        drop(second);
        assert!(activity.idle_since(Instant::now()) == Instant::now());
        let left = [&activity.in_flight, &activity.reading].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(left, [0, 0]);
    }
}
