//! Retries of requests that certainly were not executed, with backoff, until the deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Failure;

/// First pause before a retry, which then doubles, and the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(32);

/// The retries of one request.
#[derive(Debug)]
pub(super) struct Retry {
    deadline: Instant,
    pause: Duration,
}

impl Retry {
    /// Allows retries until the deadline.
    pub(super) fn until(deadline: Instant) -> Self {
        Self { deadline, pause: FIRST_PAUSE }
    }

    /// Pauses before the next attempt after a failure.
    ///
    /// # Errors
    /// The failure, if it does not permit a retry or the deadline would pass.
    pub(super) async fn pause(&mut self, failure: Failure) -> Result<(), Failure> {
        if !failure.may_be_sent_again() || Instant::now() + self.pause >= self.deadline {
            return Err(failure);
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(())
    }
}

/// Sends a request until it succeeds, a failure does not permit a retry, or the deadline passes.
///
/// # Errors
/// The last failure.
#[expect(clippy::manual_async_fn, reason = "an async function keeps its parameters twice, for each check that waits")]
pub(crate) fn retried<T, F>(deadline: Instant, send: impl Fn() -> F) -> impl Future<Output = Result<T, Failure>>
where
    F: Future<Output = Result<T, Failure>>,
{
    async move {
        let mut retry = Retry::until(deadline);
        loop {
            match send().await {
                Ok(done) => return Ok(done),
                Err(failure) => retry.pause(failure).await?,
            }
        }
    }
}
