//! The next expiry of a whole store, so that a full store is not scanned without result.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use weir_core::domain::Micros;

/// A lower bound for the next expiry. Every stored state lowers it; a scan of all shards raises it.
pub(super) struct NextExpiry {
    next: AtomicI64,
    /// The least expiry reported since the current scan began.
    since_scan: AtomicI64,
    scan: Mutex<()>,
}

impl Default for NextExpiry {
    fn default() -> Self {
        Self { next: AtomicI64::new(Micros::MAX), since_scan: AtomicI64::new(Micros::MAX), scan: Mutex::new(()) }
    }
}

/// The right to raise the bound after a scan. Only one scan at a time has it.
pub(super) struct ExpiryScan<'a> {
    next_expiry: &'a NextExpiry,
    _scan: MutexGuard<'a, ()>,
}

impl NextExpiry {
    /// Whether no state can have expired.
    pub(crate) fn none_expired(&self, now: Micros) -> bool {
        self.next.load(Ordering::SeqCst) > now
    }

    /// Reports a state that expires at `expires`.
    pub(crate) fn report(&self, expires: Micros) {
        // In this order, because `ExpiryScan::raise_to` reads `since_scan` last: it cannot miss both.
        for least in [&self.since_scan, &self.next] {
            if expires < least.load(Ordering::SeqCst) {
                least.fetch_min(expires, Ordering::SeqCst);
            }
        }
    }

    /// Starts a scan of all shards. `None` while another scan is running: the caller may scan, but not raise the bound.
    pub(crate) fn start_scan(&self) -> Option<ExpiryScan<'_>> {
        let scan = self.scan.try_lock()?;
        self.since_scan.store(Micros::MAX, Ordering::SeqCst);
        Some(ExpiryScan { next_expiry: self, _scan: scan })
    }
}

impl ExpiryScan<'_> {
    /// Raises the bound after a scan of all shards in which nothing expires before `next`.
    pub(super) fn raise_to(self, next: Micros) {
        let NextExpiry { next: bound, since_scan, .. } = self.next_expiry;
        bound.store(next, Ordering::SeqCst);
        bound.fetch_min(since_scan.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_reported_during_a_scan_lower_its_result() {
        let next_expiry = NextExpiry::default();
        next_expiry.report(10);
        assert!(!next_expiry.none_expired(10) && next_expiry.none_expired(9));
        let scan = next_expiry.start_scan().unwrap();
        assert!(next_expiry.start_scan().is_none() && !next_expiry.none_expired(10), "nothing changes until it ends");
        next_expiry.report(20);
        scan.raise_to(30);
        assert!(next_expiry.none_expired(19) && !next_expiry.none_expired(20));
        next_expiry.start_scan().unwrap().raise_to(30);
        assert!(next_expiry.none_expired(29) && !next_expiry.none_expired(30));
    }
}
