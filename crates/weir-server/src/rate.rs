//! The request rate of a connection: a burst of one second's requests, then evenly spaced, by weir-core's GCRA.

use std::{
    num::NonZeroU32,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

use weir_core::{
    algorithm::{
        meter::{Meter, Tat},
        span,
    },
    domain::{Micros, StepInput},
};

/// The rate limit of one connection's requests.
#[derive(Debug)]
pub struct Rate {
    meter: Meter,
    /// Origin of the times in `state`.
    started: Instant,
    state: Mutex<Option<Tat>>,
}

impl Rate {
    /// Allows `count` requests per period, with a burst of `count`.
    pub fn new(count: NonZeroU32, period: Micros) -> Self {
        let count = u64::from(count.get());
        let meter = Meter::new(count, span::Rate::new(count, period));
        Self { meter, started: Instant::now(), state: Mutex::default() }
    }

    /// Takes one request.
    ///
    /// # Errors
    /// Time until a request is admitted.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        self.take_at(|| self.started.elapsed().as_micros() as Micros)
    }

    /// Reads the clock under the lock, so that times are in order.
    fn take_at(&self, now: impl FnOnce() -> Micros) -> Result<(), Duration> {
        let mut state = self.state.lock();
        let input = StepInput { now: now(), cost: 1, max_wait: None, phase: 0 };
        let (decision, next) = self.meter.step(state.as_ref(), &input);
        if let Some(wait) = decision.retry_after {
            return Err(Duration::from_micros(wait.unsigned_abs()));
        }
        *state = next;
        Ok(())
    }
}

/// The pacing of a stream by the rate of its connection: messages beyond it are read later (backpressure).
#[derive(Debug)]
pub struct Pace {
    rate: Arc<Rate>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// Makes the pacing by this rate.
    pub fn new(rate: Arc<Rate>) -> Self {
        Self { rate, wait: None }
    }

    /// Waits until a message may be read. It is counted, so the caller must read one.
    pub fn poll_acquire(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            match self.rate.take() {
                Ok(()) => return Poll::Ready(()),
                Err(left) => self.wait = Some(Box::pin(sleep(left))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::domain::time::{DAY, SECOND};

    use super::*;

    const MS: Micros = 1_000;

    fn per_second(count: u32) -> Rate {
        Rate::new(NonZeroU32::new(count).unwrap(), SECOND)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn one_second_of_requests_passes_at_once_then_the_rate_applies() {
        let rate = per_second(4);
        let taken = |at: Micros| (0..10).take_while(|_| rate.take_at(|| at).is_ok()).count();
        assert_eq!(taken(0), 4);
        assert_eq!(rate.take_at(|| 0), Err(ms(250)));
        assert_eq!(rate.take_at(|| 249 * MS), Err(ms(1)));
        assert_eq!(taken(250 * MS), 1);
        assert_eq!(taken(3_600 * SECOND), 4, "what was not used does not pile up");
    }

    #[test]
    fn low_and_indivisible_rates_are_never_exceeded() {
        let slow = per_second(1);
        assert_eq!((slow.take_at(|| 0), slow.take_at(|| 0)), (Ok(()), Err(ms(1_000))));
        let odd = per_second(3);
        let passed = (0..3_000).filter(|at| odd.take_at(|| at * MS).is_ok()).count();
        assert_eq!(passed, 3 + 8, "three at once, and those of three seconds but for the last, due at their end");
    }

    #[test]
    fn the_highest_rate_and_long_times_do_not_overflow() {
        let highest = per_second(u32::MAX);
        assert_eq!((highest.take_at(|| 0), highest.take_at(|| 100_000 * DAY)), (Ok(()), Ok(())));
    }
}
