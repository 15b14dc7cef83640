//! Sending again what certainly was not carried out, until the time is up.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Failure;

/// The pauses before another attempt: the first, which doubles, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// The attempts of one request.
#[derive(Debug)]
pub(super) struct Retry {
    deadline: Instant,
    pause: Duration,
}

impl Retry {
    /// Attempts until then.
    pub(super) fn until(deadline: Instant) -> Self {
        Self { deadline, pause: FIRST_PAUSE }
    }

    /// Waits a little after a failure.
    ///
    /// # Errors
    /// The failure, where it does not allow another attempt or the time is up.
    pub(super) async fn pause(&mut self, failure: Failure) -> Result<(), Failure> {
        if !failure.may_be_sent_again() || Instant::now() + self.pause >= self.deadline {
            return Err(failure);
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Sends a request until it is answered, or a failure does not allow another attempt, or the time is up.
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
