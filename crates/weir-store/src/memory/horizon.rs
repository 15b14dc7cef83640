//! The next expiry of a whole store, so that a full store is not scanned without result.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use weir_core::domain::Micros;

/// A lower bound for the next expiry. Every stored state lowers it; a scan of all shards raises it.
pub(super) struct Horizon {
    next: AtomicI64,
    /// The least expiry reported since the current scan began.
    since_scan: AtomicI64,
    scan: Mutex<()>,
}

impl Default for Horizon {
    fn default() -> Self {
        Self { next: AtomicI64::new(Micros::MAX), since_scan: AtomicI64::new(Micros::MAX), scan: Mutex::new(()) }
    }
}

/// The right to raise the bound after a scan. Only one scan at a time has it.
pub(super) struct Raise<'a> {
    horizon: &'a Horizon,
    _scan: MutexGuard<'a, ()>,
}

impl Horizon {
    /// Whether no state can have expired.
    pub(crate) fn is_beyond(&self, now: Micros) -> bool {
        self.next.load(Ordering::SeqCst) > now
    }

    /// Reports a state that expires at `expires`.
    pub(crate) fn expects(&self, expires: Micros) {
        // In this order, because `Raise::to` reads `since_scan` last: it cannot miss both.
        for least in [&self.since_scan, &self.next] {
            if expires < least.load(Ordering::SeqCst) {
                least.fetch_min(expires, Ordering::SeqCst);
            }
        }
    }

    /// Starts a scan of all shards. `None` while another scan is running: the caller may scan, but not raise the bound.
    pub(crate) fn start_scan(&self) -> Option<Raise<'_>> {
        let scan = self.scan.try_lock()?;
        self.since_scan.store(Micros::MAX, Ordering::SeqCst);
        Some(Raise { horizon: self, _scan: scan })
    }
}

impl Raise<'_> {
    /// Raises the bound after a scan of all shards in which nothing expires before `next`.
    pub(super) fn to(self, next: Micros) {
        let Horizon { next: horizon, since_scan, .. } = self.horizon;
        horizon.store(next, Ordering::SeqCst);
        horizon.fetch_min(since_scan.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_reported_during_a_scan_lower_its_result() {
        let horizon = Horizon::default();
        horizon.expects(10);
        assert!(!horizon.is_beyond(10) && horizon.is_beyond(9));
        let scan = horizon.start_scan().unwrap();
        assert!(horizon.start_scan().is_none() && !horizon.is_beyond(10), "nothing changes until it ends");
        horizon.expects(20);
        scan.to(30);
        assert!(horizon.is_beyond(19) && !horizon.is_beyond(20));
        horizon.start_scan().unwrap().to(30);
        assert!(horizon.is_beyond(29) && !horizon.is_beyond(30));
    }
}
