//! How long an answer may take.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

/// A bound on waiting. Its timer is left running from one wait to the next and looked at only when it rings, so that a wait
/// that ends in time sets none.
pub struct Patience {
    bound: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    /// Of so long a wait.
    pub fn new(bound: Duration) -> Self {
        Self { bound, timer: Box::pin(sleep_until(Instant::now() + bound)) }
    }

    /// Waits for `future` until it is as long ago as the bound allows that `since` was. `None`: it takes too long.
    pub async fn wait<T>(&mut self, since: Instant, future: impl Future<Output = T>) -> Option<T> {
        let deadline = since + self.bound;
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            while self.timer.as_mut().poll(context).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(None);
                }
                self.timer.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    /// How long the test may take.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_wait_ends_with_what_is_waited_for_or_not_before_its_bound() {
        let bound = Duration::from_millis(20);
        let mut patience = Patience::new(bound);
        assert_eq!(patience.wait(Instant::now(), ready(7)).await, Some(7));
        for _ in 0..2 {
            let since = Instant::now();
            let waited = tokio::time::timeout(LONG, patience.wait(since, pending::<()>())).await;
            assert_eq!(waited.unwrap(), None);
            assert!(since.elapsed() >= bound);
        }
    }
}
