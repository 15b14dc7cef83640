//! The clock of the stores that keep states in this process.

use tokio::time::Instant;

use crate::machine::{Machine, System};
use weir_core::domain::{Clock, Micros};

/// Wall time when it was made, and monotonic time since: it does not follow when the wall clock is set.
#[derive(Clone, Copy, Debug)]
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
        Self::starting_at(System.wall_clock().max(least))
    }

    /// A machine's clock.
    pub(crate) fn of(machine: &dyn Machine) -> Self {
        Self::starting_at(machine.wall_clock())
    }

    /// A clock that starts at this time.
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
