//! The circuit breaker: after several consecutive outages, calls fail at once until a probe is answered.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tonic::Code;

use crate::Error;

/// The settings of the circuit breaker.
#[derive(Clone, Copy, Debug)]
pub struct BreakerSettings {
    /// Consecutive outages that open it; 0: it never opens.
    pub failures: u32,
    /// Time for which calls fail at once. After it, one probe at a time is sent.
    pub open_for: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures: 5, open_for: Duration::from_secs(1) }
    }
}

/// The state of the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls go through.
    Closed,
    /// Calls fail at once.
    Open,
    /// A probe is in flight; other calls fail at once.
    HalfOpen,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings) -> Self {
        Self { settings, state: Mutex::new(State::Closed { failures: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> BreakerState {
        match *self.lock() {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen => BreakerState::HalfOpen,
        }
    }

    /// Permits a call, or fails if the breaker is open.
    pub(crate) fn permit(&self) -> Result<Permit<'_>, Error> {
        let mut state = self.lock();
        let probe = match *state {
            State::Closed { .. } => false,
            State::Open { until } if until <= Instant::now() => {
                *state = State::HalfOpen;
                true
            }
            State::Open { .. } | State::HalfOpen => return Err(Error::CircuitOpen),
        };
        Ok(Permit { breaker: self, probe })
    }
}

/// The permit of one call. If dropped without an outcome, for example because the caller has gone, it does not count.
pub(crate) struct Permit<'a> {
    breaker: &'a Breaker,
    probe: bool,
}

impl Permit<'_> {
    /// Records the outcome of the call. A cancelled call does not count: its permit is dropped.
    pub(crate) fn record(mut self, error: Option<&Error>) {
        if error.is_some_and(|error| error.code() == Code::Cancelled) {
            return;
        }
        let outage = error.is_some_and(Error::is_outage);
        let mut state = self.breaker.lock();
        let BreakerSettings { failures: most, open_for } = self.breaker.settings;
        let open = State::Open { until: Instant::now() + open_for };
        match (&mut *state, outage) {
            (State::Closed { failures }, true) if most > 0 => {
                *failures += 1;
                if *failures >= most {
                    *state = open;
                }
            }
            // Outcomes of calls that started before it opened change nothing.
            (State::Open { .. }, _) => {}
            (State::HalfOpen, _) if !self.probe => {}
            (State::HalfOpen, true) => *state = open,
            _ => *state = State::Closed { failures: 0 },
        }
        self.probe = false;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.probe {
            *self.breaker.lock() = State::Open { until: Instant::now() };
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, pause};

    use super::*;

    fn call(breaker: &Breaker, outage: bool) {
        breaker.permit().expect("let through").record(outage.then_some(&Error::CircuitOpen));
    }

    #[tokio::test]
    async fn opens_after_failures_in_a_row_and_probes_one_at_a_time() {
        pause();
        let breaker = Breaker::new(BreakerSettings::default());
        for outage in [true, true, true, true, false, true, true, true, true] {
            call(&breaker, outage);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        let late = breaker.permit().expect("closed");
        call(&breaker, true);
        assert_eq!(breaker.state(), BreakerState::Open);
        late.record(None);
        advance(Duration::from_millis(999)).await;
        assert_eq!(breaker.permit().err(), Some(Error::CircuitOpen));

        advance(Duration::from_millis(1)).await;
        let probe = breaker.permit().expect("a probe");
        assert_eq!((breaker.state(), breaker.permit().err()), (BreakerState::HalfOpen, Some(Error::CircuitOpen)));
        drop(probe);
        let cancelled = Error::Other { code: Code::Cancelled, message: String::new() };
        breaker.permit().expect("the next probe").record(Some(&cancelled));
        assert_eq!(breaker.state(), BreakerState::Open);
        call(&breaker, true);
        assert_eq!(breaker.permit().err(), Some(Error::CircuitOpen));
        advance(Duration::from_secs(1)).await;
        call(&breaker, false);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[tokio::test]
    async fn with_zero_failures_it_never_opens() {
        let breaker = Breaker::new(BreakerSettings { failures: 0, ..BreakerSettings::default() });
        (0..100).for_each(|_| call(&breaker, true));
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
}
