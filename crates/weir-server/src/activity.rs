//! What a client does on a connection: whether it has authenticated, its protocol, its requests in flight, and its idle
//! time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper::Version;
use tokio::time::Instant;

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
    in_flight: AtomicUsize,
    /// Whether there was a request since the last [`Self::take_use`].
    was_used: AtomicBool,
    /// Whether [`Self::idle_since`] is recorded.
    is_timed: bool,
    /// Time at which the last request ended, in microseconds since `started`.
    idle_since: AtomicU64,
}

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Requests are in flight.
    InFlight,
    /// No requests are in flight, but there were some since the last [`Activity::take_use`].
    SinceLast,
    /// No requests are in flight, and there were none since the last [`Activity::take_use`].
    Idle,
}

/// A request in flight, counted until this is dropped: keep it as long as the body of the answer.
#[derive(Debug)]
pub struct InFlight(Arc<Activity>);

impl Activity {
    /// Makes the activity of a new connection; `is_timed`: [`Self::idle_since`] is recorded.
    pub(crate) fn new(is_timed: bool) -> Self {
        let (is_authenticated, protocol, is_last, in_flight, idle_since) = Default::default();
        // Its first request is on its way.
        let was_used = AtomicBool::new(true);
        Self { started: Instant::now(), is_authenticated, protocol, is_last, in_flight, was_used, is_timed, idle_since }
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

    /// Counts the start of a request.
    #[inline]
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        InFlight(Arc::clone(self))
    }

    /// Returns the use since the last call of this function.
    pub(crate) fn take_use(&self) -> Use {
        let was_used = self.was_used.swap(false, Ordering::Relaxed);
        match self.in_flight.load(Ordering::Acquire) {
            0 if was_used => Use::SinceLast,
            0 => Use::Idle,
            _ => Use::InFlight,
        }
    }

    /// Counts the end of a request.
    pub(crate) fn ended(&self, at: Instant) {
        let since = u64::try_from((at - self.started).as_micros()).unwrap_or(u64::MAX);
        self.idle_since.fetch_max(since, Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Release);
    }

    /// Returns the time since which no request is in flight; `now` while one is.
    pub(crate) fn idle_since(&self, now: Instant) -> Instant {
        if self.in_flight.load(Ordering::Acquire) > 0 {
            return now;
        }
        self.started + Duration::from_micros(self.idle_since.load(Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(crate) fn started(&self) -> Instant {
        self.started
    }
}

impl Drop for InFlight {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_timed {
            self.0.ended(Instant::now());
        } else {
            self.0.in_flight.fetch_sub(1, Ordering::Release);
        }
    }
}
