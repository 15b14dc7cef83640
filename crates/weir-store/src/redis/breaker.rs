//! The circuit breaker of a server, or of a Cluster's topology.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{Failure, metrics::Outage};

/// Consecutive failed round trips that open the circuit breaker.
const MAX_FAILURES: u32 = 5;
/// A failure within this time after the circuit breaker closed continues the same outage.
pub(super) const RELAPSE: Duration = Duration::from_secs(5);

/// Opens after [`MAX_FAILURES`] consecutive failures, or immediately when a server is slow. A successful probe or
/// refresh closes it.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    open: AtomicBool,
    failures: AtomicU32,
    opened: Notify,
    last: Mutex<Option<Last>>,
}

/// The last outage, and when the circuit breaker closed after it.
#[derive(Debug)]
struct Last {
    outage: Outage,
    closed: Option<Instant>,
}

impl Breaker {
    /// Whether the circuit breaker is open, so that no requests may be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Returns the failure for requests while the circuit breaker is open.
    pub(crate) fn open_failure(&self) -> Option<Failure> {
        self.is_open().then(|| Failure::BreakerOpen(self.cause()))
    }

    /// Returns the failure that last opened it.
    pub(crate) fn cause(&self) -> Arc<str> {
        self.last.lock().as_ref().map(|last| Arc::clone(&last.outage.cause)).unwrap_or_default()
    }

    /// Returns the outage while the circuit breaker is open.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.last.lock().as_ref().filter(|_| self.is_open()).map(|last| last.outage.clone())
    }

    pub(crate) fn succeeded(&self) {
        // Read first: nearly all round trips succeed, and writing to a shared cache line is expensive.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn failed(&self, failure: &Failure) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_FAILURES {
            self.trip(failure);
        }
    }

    /// Opens the circuit breaker immediately, since the server is slow or unreachable.
    pub(crate) fn trip(&self, failure: &Failure) {
        if self.is_open() {
            return;
        }
        self.note(failure.to_string().into());
        if !self.open.swap(true, Ordering::AcqRel) {
            self.opened.notify_one();
        }
    }

    fn note(&self, cause: Arc<str>) {
        let (mut last, now) = (self.last.lock(), Instant::now());
        let goes_on = last.as_ref().filter(|last| last.closed.is_some_and(|closed| now - closed < RELAPSE));
        let since = goes_on.map_or(now, |last| last.outage.since);
        *last = Some(Last { outage: Outage { cause, since }, closed: None });
    }

    pub(crate) fn close(&self) {
        if let Some(last) = self.last.lock().as_mut() {
            last.closed = Some(Instant::now());
        }
        self.failures.store(0, Ordering::Relaxed);
        self.open.store(false, Ordering::Release);
    }

    /// Waits until it is open. Supports only one waiting task.
    pub(crate) async fn wait_until_open(&self) {
        while !self.is_open() {
            self.opened.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn consecutive_failures_open_the_breaker_until_it_is_closed() {
        let breaker = Breaker::default();
        for _ in 0..3 {
            (1..MAX_FAILURES).for_each(|_| breaker.failed(&Failure::Closed));
            breaker.succeeded();
        }
        assert!(!breaker.is_open(), "no {MAX_FAILURES} in a row");
        (0..MAX_FAILURES).for_each(|_| breaker.failed(&Failure::Closed));
        breaker.wait_until_open().await;
        breaker.succeeded();
        assert!(breaker.is_open(), "a late success says nothing about now");
        breaker.close();
        (1..MAX_FAILURES).for_each(|_| breaker.failed(&Failure::Closed));
        assert!(!breaker.is_open(), "counted afresh");
        breaker.trip(&Failure::Late);
        assert_eq!(breaker.open_failure(), Some(Failure::BreakerOpen(Failure::Late.to_string().into())));
        breaker.wait_until_open().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_continues_when_the_server_soon_fails_again() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        let outage = || breaker.outage().map(|outage| ((outage.since - start).as_secs(), outage.cause.to_string()));
        assert_eq!(outage(), None);
        breaker.trip(&Failure::Late);
        breaker.close();
        assert_eq!(outage(), None, "closed");
        tokio::time::advance(RELAPSE - Duration::from_secs(1)).await;
        breaker.trip(&Failure::Closed);
        assert_eq!(outage(), Some((0, Failure::Closed.to_string())));
        breaker.close();
        tokio::time::advance(RELAPSE).await;
        breaker.trip(&Failure::Late);
        assert_eq!(outage(), Some((9, Failure::Late.to_string())));
    }
}
