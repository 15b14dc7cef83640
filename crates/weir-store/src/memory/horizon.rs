//! When the next state of a whole store expires, so that a full one does not scan in vain.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use weir_core::domain::Micros;

/// A moment before which nothing expires. Every state lowers it; a scan of all shards raises it.
pub(super) struct Horizon {
    next: AtomicI64,
    /// The least expiry that was reported since the scan under way began.
    since_scan: AtomicI64,
    scan: Mutex<()>,
}

impl Default for Horizon {
    fn default() -> Self {
        Self { next: AtomicI64::new(Micros::MAX), since_scan: AtomicI64::new(Micros::MAX), scan: Mutex::new(()) }
    }
}

/// The right to raise the horizon after a scan; one scan at a time has it.
pub(super) struct Raise<'a> {
    horizon: &'a Horizon,
    _scan: MutexGuard<'a, ()>,
}

impl Horizon {
    /// Whether nothing can have expired.
    pub(crate) fn is_beyond(&self, now: Micros) -> bool {
        self.next.load(Ordering::SeqCst) > now
    }

    /// A state expires then.
    pub(crate) fn expects(&self, expires: Micros) {
        // First the one that a scan reads last, so that it cannot miss both.
        for least in [&self.since_scan, &self.next] {
            if expires < least.load(Ordering::SeqCst) {
                least.fetch_min(expires, Ordering::SeqCst);
            }
        }
    }

    /// Begins a scan of all shards. `None` while another one is under way: the caller may scan, but not raise.
    pub(crate) fn start_scan(&self) -> Option<Raise<'_>> {
        let scan = self.scan.try_lock()?;
        self.since_scan.store(Micros::MAX, Ordering::SeqCst);
        Some(Raise { horizon: self, _scan: scan })
    }
}

impl Raise<'_> {
    /// The scan has seen all shards, and nothing in them expires before `next`.
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
