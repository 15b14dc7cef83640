//! When the next state of a whole store expires, so that a full one does not look in vain.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use weir_core::domain::Micros;

/// A moment before which nothing expires. Every state lowers it; a look at all shards raises it.
pub(super) struct Horizon {
    next: AtomicI64,
    /// The least expiry that was reported since the look under way began.
    since_look: AtomicI64,
    look: Mutex<()>,
}

impl Default for Horizon {
    fn default() -> Self {
        Self { next: AtomicI64::new(Micros::MAX), since_look: AtomicI64::new(Micros::MAX), look: Mutex::new(()) }
    }
}

/// The right to raise the horizon after a look; one look at a time has it.
pub(super) struct Raise<'a> {
    horizon: &'a Horizon,
    _look: MutexGuard<'a, ()>,
}

impl Horizon {
    /// Whether nothing can have expired.
    pub(crate) fn is_beyond(&self, now: Micros) -> bool {
        self.next.load(Ordering::SeqCst) > now
    }

    /// A state expires then.
    pub(crate) fn expects(&self, expires: Micros) {
        // First the one that a look reads last, so that it cannot miss both.
        for least in [&self.since_look, &self.next] {
            if expires < least.load(Ordering::SeqCst) {
                least.fetch_min(expires, Ordering::SeqCst);
            }
        }
    }

    /// Begins a look at all shards. `None` while another one is under way: this one may look, but not raise.
    pub(crate) fn start_look(&self) -> Option<Raise<'_>> {
        let look = self.look.try_lock()?;
        self.since_look.store(Micros::MAX, Ordering::SeqCst);
        Some(Raise { horizon: self, _look: look })
    }
}

impl Raise<'_> {
    /// The look has seen all shards, and nothing in them expires before `next`.
    pub(super) fn to(self, next: Micros) {
        let Horizon { next: horizon, since_look, .. } = self.horizon;
        horizon.store(next, Ordering::SeqCst);
        horizon.fetch_min(since_look.load(Ordering::SeqCst), Ordering::SeqCst);
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
        let look = horizon.start_look().unwrap();
        assert!(horizon.start_look().is_none() && !horizon.is_beyond(10), "nothing changes until it ends");
        horizon.expects(20);
        look.to(30);
        assert!(horizon.is_beyond(19) && !horizon.is_beyond(20));
        horizon.start_look().unwrap().to(30);
        assert!(horizon.is_beyond(29) && !horizon.is_beyond(30));
    }
}
