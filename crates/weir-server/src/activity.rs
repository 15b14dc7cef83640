//! The requests in flight on a connection, and since when there are none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Whether a connection has requests in flight, and since when not.
#[derive(Debug)]
pub(crate) struct Activity {
    begun: Instant,
    under_way: AtomicUsize,
    /// Since the last [`Self::take_use`].
    was_used: AtomicBool,
    /// Whether [`Self::quiet_since`] is recorded.
    is_timed: bool,
    /// When the last request ended, in microseconds since `begun`.
    quiet_since: AtomicU64,
}

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Requests are in flight.
    UnderWay,
    /// None are, but some were since the last look.
    SinceLast,
    /// None are, nor were.
    Idle,
}

/// A request in flight, until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Activity {
    /// For a new connection; `is_timed` records [`Self::quiet_since`].
    pub(crate) fn new(is_timed: bool) -> Self {
        let (under_way, was_used, quiet_since) = Default::default();
        Self { begun: Instant::now(), under_way, was_used, is_timed, quiet_since }
    }

    /// A request begins.
    #[inline]
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        Busy(Arc::clone(self))
    }

    /// Its use since the last call of this.
    pub(crate) fn take_use(&self) -> Use {
        let was_used = self.was_used.swap(false, Ordering::Relaxed);
        match self.under_way.load(Ordering::Acquire) {
            0 if was_used => Use::SinceLast,
            0 => Use::Idle,
            _ => Use::UnderWay,
        }
    }

    /// A request has ended.
    pub(crate) fn ended(&self, at: Instant) {
        let since = u64::try_from((at - self.begun).as_micros()).unwrap_or(u64::MAX);
        self.quiet_since.fetch_max(since, Ordering::Relaxed);
        self.under_way.fetch_sub(1, Ordering::Release);
    }

    /// Since when no request is in flight; `now` while one is.
    pub(crate) fn quiet_since(&self, now: Instant) -> Instant {
        if self.under_way.load(Ordering::Acquire) > 0 {
            return now;
        }
        self.begun + Duration::from_micros(self.quiet_since.load(Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }
}

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_timed {
            self.0.ended(Instant::now());
        } else {
            self.0.under_way.fetch_sub(1, Ordering::Release);
        }
    }
}
