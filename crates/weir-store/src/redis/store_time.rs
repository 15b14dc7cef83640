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

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use futures_util::future::BoxFuture;
    use tokio::time::advance;
    use weir_core::domain::time::SECOND;

    use super::*;
    use crate::{platform::Stream, url::Address};

    struct SteppedClock(AtomicI64);

    impl Platform for SteppedClock {
        fn connect<'a>(&'a self, _: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }

        fn wall_clock(&self) -> Micros {
            self.0.load(Relaxed)
        }

        fn random(&self) -> u64 {
            0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_wall_clock_does_not_change_the_estimate() {
        const START: Micros = 1_790_000_000 * SECOND;
        const HOUR: Micros = 3_600 * SECOND;
        let platform = SteppedClock(AtomicI64::new(START));
        let time = StoreTime::new(&platform, None);
        time.synchronize(START + 9 * SECOND);
        for step in [HOUR, -2 * HOUR] {
            let before = time.now();
            platform.0.fetch_add(step, Relaxed);
            advance(Duration::from_secs(1)).await;
            assert_eq!(time.now(), before + SECOND, "after a step of {step} us");
        }
        assert_eq!(time.now(), START + 11 * SECOND);
    }
}
