//! The clock of stores in this process.

use tokio::time::Instant;

use crate::platform::{OsPlatform, Platform};
use weir_core::domain::{Clock, Micros};

/// The wall clock at creation, advanced by monotonic time: later changes of the wall clock do not affect it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Micros,
    started: Instant,
}

impl SystemClock {
    /// Creates a clock that starts at the current wall time.
    pub fn new() -> Self {
        Self::resuming_at(Micros::MIN)
    }

    /// Creates a clock that starts at the current wall time, but no earlier than `least`, the last time of a previous
    /// clock.
    pub fn resuming_at(least: Micros) -> Self {
        Self::starting_at(OsPlatform.wall_clock().max(least))
    }

    /// Creates a clock that starts at a machine's wall time.
    pub(crate) fn of(platform: &dyn Platform) -> Self {
        Self::starting_at(platform.wall_clock())
    }

    /// Creates a clock that starts at `origin`.
    pub fn starting_at(origin: Micros) -> Self {
        Self { origin, started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Micros {
        self.origin + self.started.elapsed().as_micros() as Micros
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}
