//! Timeouts of answers.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

/// A timeout whose timer keeps running from one wait to the next and is reset only when it fires, so a wait that ends
/// in time costs no timer operation.
pub(crate) struct Timeout {
    bound: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Timeout {
    /// Makes a timeout of `bound`.
    pub(crate) fn new(bound: Duration) -> Self {
        Self { bound, timer: Box::pin(sleep_until(Instant::now() + bound)) }
    }

    /// Waits for `future` until the timeout has passed since `since`. `None`: timed out.
    pub(crate) async fn wait<T>(&mut self, since: Instant, future: impl Future<Output = T>) -> Option<T> {
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

    /// Timeout of the test.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_wait_ends_with_its_future_or_at_its_timeout() {
        let bound = Duration::from_millis(20);
        let mut timeout = Timeout::new(bound);
        assert_eq!(timeout.wait(Instant::now(), ready(7)).await, Some(7));
        for _ in 0..2 {
            let since = Instant::now();
            let waited = tokio::time::timeout(LONG, timeout.wait(since, pending::<()>())).await;
            assert_eq!(waited.unwrap(), None);
            assert!(since.elapsed() >= bound);
        }
    }
}
