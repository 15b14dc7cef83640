//! An estimate of the servers' clock. Their clock decides, but some arguments, such as calendar windows, depend on it.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use crate::{SystemClock, platform::Platform};
use weir_core::domain::{Clock, Micros};

/// Error of the estimate that is not corrected. Much less than the shortest ttl of a hold.
const MAX_ERROR: Micros = 5_000;

/// This machine's clock with the offset last measured from a server; or a given clock.
pub(crate) struct StoreTime {
    /// Later changes of the wall clock do not affect it, so that overrides do not end by them during an outage.
    local: SystemClock,
    clock: Option<Arc<dyn Clock>>,
    /// Offset of the servers' clock from `local`, in microseconds.
    ahead: AtomicI64,
}

impl StoreTime {
    /// Creates an estimate without an offset yet, or one that follows `clock`.
    pub(crate) fn new(platform: &dyn Platform, clock: Option<Arc<dyn Clock>>) -> Self {
        Self { local: SystemClock::of(platform), clock, ahead: AtomicI64::new(0) }
    }

    /// Returns the time of the given clock, if there is one.
    pub(crate) fn virtual_now(&self) -> Option<Micros> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// Returns the estimated time of the servers.
    pub(crate) fn now(&self) -> Micros {
        self.virtual_now().unwrap_or_else(|| self.local.now() + self.ahead.load(Relaxed))
    }

    /// Updates the offset from a time just received from a server.
    pub(crate) fn synchronize(&self, at: Micros) {
        if self.clock.is_some() {
            return;
        }
        let ahead = at - self.local.now();
        // All workers read the offset, so that writes are expensive.
        if (ahead - self.ahead.load(Relaxed)).abs() > MAX_ERROR {
            self.ahead.store(ahead, Relaxed);
        }
    }
}

impl Clock for StoreTime {
    fn now(&self) -> Micros {
        self.now()
    }

    fn is_monotonic(&self) -> bool {
        false
    }
}
