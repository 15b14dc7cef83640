//! The clock of the stores that keep states in this process.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use weir_core::domain::{Clock, Micros};

/// Wall time when it was made, and monotonic time since: it does not follow when the wall clock is set.
#[derive(Debug)]
pub struct SystemClock {
    origin: Micros,
    started: Instant,
}

impl SystemClock {
    /// A clock that starts at the present wall time.
    pub fn new() -> Self {
        Self::resuming_at(Micros::MIN)
    }

    /// A clock that starts at the present wall time, or at `least` where that is later: where another clock has left off.
    pub fn resuming_at(least: Micros) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: (wall.as_micros() as Micros).max(least), started: Instant::now() }
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
