//! What time the servers have, about: theirs decides, but what is sent to them may depend on it.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use crate::machine::Machine;
use weir_core::domain::{Clock, Micros, time::SECOND};

/// This machine's time, put right by what a server told last; or a given clock's.
pub(crate) struct StoreTime {
    machine: Arc<dyn Machine>,
    clock: Option<Arc<dyn Clock>>,
    /// How far the servers are ahead of this machine.
    ahead: AtomicI64,
}

impl StoreTime {
    /// Of servers that have told nothing yet, or that are told the time of `clock`.
    pub(crate) fn new(machine: Arc<dyn Machine>, clock: Option<Arc<dyn Clock>>) -> Self {
        Self { machine, clock, ahead: AtomicI64::new(0) }
    }

    /// About the servers' present.
    pub(crate) fn now(&self) -> Micros {
        match &self.clock {
            Some(clock) => clock.now(),
            None => self.machine.wall_clock() + self.ahead.load(Relaxed),
        }
    }

    /// A server has just told its time.
    pub(crate) fn synchronize(&self, at: Micros) {
        if self.clock.is_some() {
            return;
        }
        let ahead = at - self.machine.wall_clock();
        // Finer is of no use, and all workers read it.
        if (ahead - self.ahead.load(Relaxed)).abs() > SECOND {
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
