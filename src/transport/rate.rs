//! How many requests a connection may make a second: a second's worth at once, then evenly.

use std::{
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// The requests that one connection may make.
#[derive(Debug)]
pub struct Rate {
    begun: Instant,
    /// From one request to the next, in nanoseconds.
    interval: u64,
    /// How far requests may be ahead of their time, in nanoseconds.
    ahead: u64,
    /// When the next one is in time, in nanoseconds since `begun`.
    next: AtomicU64,
}

impl Rate {
    /// So many a second, and as many at once.
    pub fn per_second(count: NonZeroU32) -> Self {
        // Rounded up, so that there are never more.
        Self::every(Duration::from_nanos(NANOS_A_SECOND.div_ceil(u64::from(count.get()))), count)
    }

    /// So many at once, then one each time that this has passed; all of it is at most some hundred years long.
    pub fn every(interval: Duration, at_once: NonZeroU32) -> Self {
        let interval = nanos(interval);
        let ahead = interval.saturating_mul(u64::from(at_once.get() - 1));
        Self { begun: Instant::now(), interval, ahead, next: AtomicU64::new(0) }
    }

    /// Makes a request.
    ///
    /// # Errors
    /// How long until one may be made.
    pub fn take(&self) -> Result<(), Duration> {
        self.take_at(self.begun.elapsed())
    }

    /// The same so long after the beginning.
    fn take_at(&self, now: Duration) -> Result<(), Duration> {
        let now = nanos(now);
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            let next = next.max(now);
            (next - now <= self.ahead).then(|| next.saturating_add(self.interval))
        });
        taken.map(|_| ()).map_err(|next| Duration::from_nanos(next - now - self.ahead))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Holds a stream to the rate of its connection: what is beyond it is not read before its time.
#[derive(Debug)]
pub struct Pace {
    rate: Arc<Rate>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// Held to this rate.
    pub fn new(rate: Arc<Rate>) -> Self {
        Self { rate, wait: None }
    }

    /// Waits until a message may be read, which is then to be done: it is counted.
    pub fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
    use super::*;

    fn rate(count: u32) -> Rate {
        Rate::per_second(NonZeroU32::new(count).unwrap())
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_seconds_worth_passes_at_once_then_one_at_a_time() {
        let rate = rate(4);
        let taken = |at: Duration| (0..10).take_while(|_| rate.take_at(at).is_ok()).count();
        assert_eq!(taken(ms(0)), 4);
        assert_eq!(rate.take_at(ms(0)), Err(ms(250)));
        assert_eq!(rate.take_at(ms(249)), Err(ms(1)));
        assert_eq!(taken(ms(250)), 1);
        assert_eq!(taken(ms(3_600_000)), 4, "what was not used does not pile up");
    }

    #[test]
    fn one_a_second_is_one_and_an_odd_one_is_never_more() {
        let slow = rate(1);
        assert_eq!((slow.take_at(ms(0)), slow.take_at(ms(0))), (Ok(()), Err(ms(1_000))));
        let odd = rate(3);
        let passed = (0..3_000).filter(|at| odd.take_at(ms(*at)).is_ok()).count();
        assert_eq!(passed, 3 + 8, "three at once, and those of three seconds but for the last, due at their end");
    }

    #[test]
    fn the_longest_times_do_no_harm() {
        let rare = Rate::every(Duration::MAX, NonZeroU32::MAX);
        assert_eq!((rare.take_at(ms(0)), rare.take_at(Duration::MAX)), (Ok(()), Ok(())));
        assert!(rate(u32::MAX).take_at(ms(0)).is_ok());
    }
}
