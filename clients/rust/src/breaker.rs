//! The circuit breaker: after several consecutive outages, calls fail immediately until a probe is answered.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tonic::Code;

use crate::{Error, call::MAX_DEADLINE};

/// The settings of the circuit breaker.
#[derive(Clone, Copy, Debug)]
pub struct BreakerSettings {
    /// Consecutive outages that open it; 0: it never opens.
    pub failures: u32,
    /// Time for which calls fail immediately. After it, one probe at a time is sent.
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
    /// Calls fail immediately.
    Open,
    /// A probe is in flight; other calls fail immediately.
    HalfOpen,
}

/// An outage does not count if its call started before the last answer: calls that were sent concurrently to one frozen
/// replica miss their deadlines together, while other replicas answer.
#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// The number of answers so far.
    answers: u64,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings) -> Self {
        let settings = BreakerSettings { open_for: settings.open_for.min(MAX_DEADLINE), ..settings };
        Self { settings, inner: Mutex::new(Inner { state: State::Closed { failures: 0 }, answers: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.lock().state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen => BreakerState::HalfOpen,
        }
    }

    /// Permits a call, or fails if the breaker is open.
    pub(crate) fn permit(&self) -> Result<Permit<'_>, Error> {
        let mut inner = self.lock();
        let probe = match inner.state {
            State::Closed { .. } => false,
            State::Open { until } if until <= Instant::now() => {
                inner.state = State::HalfOpen;
                true
            }
            State::Open { .. } | State::HalfOpen => return Err(Error::CircuitOpen),
        };
        Ok(Permit { breaker: self, probe, answers: inner.answers })
    }
}

/// The permit of one call. If dropped without an outcome, for example because the caller has gone, it does not count.
pub(crate) struct Permit<'a> {
    breaker: &'a Breaker,
    probe: bool,
    /// The number of answers when the call started.
    answers: u64,
}

impl Permit<'_> {
    /// Records the outcome of the call. A cancelled call does not count: its permit is dropped.
    pub(crate) fn record(mut self, error: Option<&Error>) {
        if error.is_some_and(|error| error.code() == Code::Cancelled) {
            return;
        }
        let probe = std::mem::take(&mut self.probe);
        let mut inner = self.breaker.lock();
        if !error.is_some_and(Error::is_outage) {
            inner.answers += 1;
            inner.state = State::Closed { failures: 0 };
            return;
        }
        if self.answers != inner.answers {
            return;
        }
        let BreakerSettings { failures: most, open_for } = self.breaker.settings;
        let open = State::Open { until: Instant::now() + open_for };
        match &mut inner.state {
            State::Closed { failures } if most > 0 => {
                *failures += 1;
                if *failures >= most {
                    inner.state = open;
                }
            }
            State::HalfOpen if probe => inner.state = open,
            // Outages of calls that started before it opened change nothing.
            _ => {}
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.probe {
            return;
        }
        let mut inner = self.breaker.lock();
        // The answer to an earlier call may have closed it meanwhile. If it has opened again, another call may be the probe.
        if self.answers == inner.answers && matches!(inner.state, State::HalfOpen) {
            inner.state = State::Open { until: Instant::now() };
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
        call(&breaker, true);
        assert_eq!(breaker.state(), BreakerState::Open);
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
    async fn outages_of_calls_that_began_before_the_last_answer_do_not_count() {
        pause();
        let breaker = Breaker::new(BreakerSettings { failures: 2, ..BreakerSettings::default() });
        let together: Vec<_> = (0..10).map(|_| breaker.permit().expect("closed")).collect();
        call(&breaker, false);
        together.into_iter().for_each(|permit| permit.record(Some(&Error::CircuitOpen)));
        assert_eq!(breaker.state(), BreakerState::Closed);
        let mut early: Vec<_> = (0..3).map(|_| breaker.permit().expect("closed")).collect();
        call(&breaker, true);
        call(&breaker, true);
        assert_eq!(breaker.state(), BreakerState::Open);

        // Calls that were sent before it opened: an outage changes nothing, an answer closes it, regardless of the
        // probe.
        advance(Duration::from_secs(1)).await;
        let probe = breaker.permit().expect("a probe");
        early.pop().expect("a call").record(Some(&Error::CircuitOpen));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        early.pop().expect("a call").record(None);
        probe.record(Some(&Error::CircuitOpen));
        assert_eq!(breaker.state(), BreakerState::Closed);
        call(&breaker, true);
        call(&breaker, true);
        advance(Duration::from_secs(1)).await;
        let probe = breaker.permit().expect("a probe");
        early.pop().expect("a call").record(None);
        drop(probe);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[tokio::test]
    async fn an_answer_frees_the_place_of_the_probe() {
        pause();
        let breaker = Breaker::new(BreakerSettings { failures: 1, open_for: Duration::ZERO });
        let early = breaker.permit().expect("closed");
        call(&breaker, true);
        let former = breaker.permit().expect("a probe");
        early.record(None);
        call(&breaker, true);
        let _probe = breaker.permit().expect("a probe");
        // It is not the place of this one any more.
        drop(former);
        assert_eq!((breaker.state(), breaker.permit().err()), (BreakerState::HalfOpen, Some(Error::CircuitOpen)));
    }

    #[tokio::test]
    async fn with_zero_failures_it_never_opens() {
        let breaker = Breaker::new(BreakerSettings { failures: 0, ..BreakerSettings::default() });
        (0..100).for_each(|_| call(&breaker, true));
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
}
