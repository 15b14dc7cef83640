//! One call: its deadline, its retries, and its outcome for the circuit breaker.

use std::{error::Error as _, iter::successors, time::Duration};

use tokio::time::{Instant, timeout_at};
use tonic::{Code, Request, Status};

use crate::{
    Error,
    breaker::Breaker,
    check::charges,
    net::{Avoid, Connection, Lost, Pool},
    proto::CheckRequest,
    token::Token,
};

/// Delay before a rejected stream, for example at `grpc.max_open_streams`, is opened again.
pub(crate) const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// Maximum deadline: a clock cannot hold arbitrarily late times.
pub(crate) const MAX_DEADLINE: Duration = Duration::from_secs(86_400);

/// Makes an attempt from a unary method of the service.
macro_rules! unary {
    ($method:ident) => {
        |connection: $crate::net::Connection, request| async move {
            Ok::<_, $crate::call::Failure>(connection.client().$method(request).await?.into_inner())
        }
    };
}
pub(crate) use unary;

/// Shared parts of all calls.
pub(crate) struct Caller {
    pub(crate) pool: Pool,
    pub(crate) breaker: Breaker,
    pub(crate) token: Token,
    pub(crate) retries: u32,
}

/// Whether a call that may have been executed may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Always: the call is idempotent.
    Safe,
    /// Only if it certainly was not executed.
    IfUnsent,
}

impl From<&CheckRequest> for Repeat {
    fn from(check: &CheckRequest) -> Self {
        if check.request_id.is_empty() && charges(check) { Self::IfUnsent } else { Self::Safe }
    }
}

/// An attempt that ended without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether the service certainly did not execute the call.
    unsent: bool,
    /// Whether the connection is unusable.
    pub(crate) lost: bool,
}

impl Failure {
    /// The stream that carried the call, and that the service had accepted, has ended, with this status if not OK.
    pub(crate) fn stream_ended(status: Option<Status>) -> Self {
        let ended = status.map(Self::from);
        let why = ended.as_ref().map(|ended| format!(": {}", ended.error)).unwrap_or_default();
        let lost = ended.is_some_and(|ended| ended.lost);
        Self { error: Error::Unavailable(format!("the stream has ended{why}")), unsent: false, lost }
    }

    /// Whether a stream that ended without headers was rejected by the service, which then processed nothing of it.
    pub(crate) fn is_rejection(&self) -> bool {
        !matches!(self.error.code(), Code::Unavailable | Code::Cancelled)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, unsent: false, lost: false }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let causes = || successors(status.source(), |error| (**error).source());
        let lost = causes().find_map(|error| error.downcast_ref::<Lost>());
        let innermost = match causes().last() {
            Some(error) if lost.is_some() || causes().any(|error| error.is::<hyper::Error>()) => error.to_string(),
            _ => return Error::from(&status).into(),
        };
        let h2 = causes().find_map(|error| error.downcast_ref::<h2::Error>());
        Self {
            error: Error::Unavailable(format!("the connection was lost: {innermost}")),
            // After GOAWAY a server executes only the calls that it answers.
            unsent: lost.is_some_and(|lost| lost.unsent)
                || h2.is_some_and(|error| {
                    (error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR))
                        || error.reason() == Some(h2::Reason::REFUSED_STREAM)
                }),
            lost: !h2.is_some_and(h2::Error::is_reset),
        }
    }
}

impl Caller {
    /// Makes a call with as many attempts as needed and permitted. The message is cloned for each.
    pub(crate) async fn call<M: Clone, T, F: Future<Output = Result<T, Failure>>>(
        &self,
        message: M,
        deadline: Duration,
        repeat: Repeat,
        attempt: impl Fn(Connection, Request<M>) -> F,
    ) -> Result<T, Error> {
        if deadline.is_zero() {
            // No sign of an outage: the caller has used up its time.
            return Err(Error::DeadlineExceeded("not sent: the deadline is over already".to_owned()));
        }
        let permit = self.breaker.permit()?;
        let until = Instant::now() + deadline;
        let mut failed = None;
        let result = timeout_at(until, self.attempts(message, until, repeat, attempt, &mut failed)).await;
        // The error of the attempt before says more than that no time was left for a retry.
        let late = || failed.unwrap_or_else(|| Error::DeadlineExceeded(format!("no answer within {deadline:?}")));
        let result = result.unwrap_or_else(|_| Err(late()));
        permit.record(result.as_ref().err());
        result
    }

    /// Adds the current token.
    pub(crate) fn authorize<M>(&self, request: &mut Request<M>) {
        if let Some(value) = self.token.value() {
            request.metadata_mut().insert("authorization", value);
        }
    }

    /// Makes attempts. During a retry `failed` is the error of the attempt before.
    async fn attempts<M: Clone, T, F: Future<Output = Result<T, Failure>>>(
        &self,
        message: M,
        until: Instant,
        repeat: Repeat,
        attempt: impl Fn(Connection, Request<M>) -> F,
        failed: &mut Option<Error>,
    ) -> Result<T, Error> {
        let (mut left, mut avoid) = (self.retries, None);
        loop {
            let connection = match self.pool.ready(avoid.as_ref(), failed.is_some()).await {
                Ok(connection) => connection,
                // Nothing was sent. A retry waits for a connection, and fails only when the client is closed.
                Err(error) if left > 0 && failed.is_none() && error.code() == Code::Unavailable => {
                    left -= 1;
                    *failed = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut request = Request::new(message.clone());
            request.set_timeout(until.saturating_duration_since(Instant::now()));
            self.authorize(&mut request);
            let Failure { error, unsent, lost } = match attempt(connection.clone(), request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let repeatable = unsent || (repeat == Repeat::Safe && error.code() == Code::Unavailable);
            if left == 0 || !repeatable {
                return Err(error);
            }
            left -= 1;
            *failed = Some(error);
            avoid = Some(Avoid { connection, lost });
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::{
        BreakerSettings, BreakerState, Check, Client,
        fake_service::{serve, virtual_time},
        proto::{CheckAllResponse, CheckResponse},
    };

    const DEADLINE: Duration = Duration::from_secs(2);

    fn client(socket: &std::path::Path, retries: u32) -> Client {
        let target = format!("unix:{}", socket.display());
        Client::builder(target).deadline(DEADLINE).retries(retries).build().expect("a client")
    }

    #[tokio::test]
    async fn a_retry_waits_for_a_service_that_starts() {
        virtual_time();
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("weir.sock");
        let weir = client(&socket, 1);
        tokio::spawn(async move {
            sleep(Duration::from_millis(200)).await;
            let mut calls = serve(&socket);
            while let Some(call) = calls.recv().await {
                match &*call.method {
                    "CheckAll" => call.answer(&CheckAllResponse { allowed: true, ..CheckAllResponse::default() }),
                    _ => call.answer(&CheckResponse { allowed: true, ..CheckResponse::default() }),
                }
            }
        });
        // Nothing is sent without a connection, so a call that must not be repeated waits too.
        let all = weir.check_all([["api"]]);
        let (decision, all) = tokio::join!(weir.check(["api"]), all);
        assert!(decision.expect("an answer").allowed && all.expect("an answer").allowed);
    }

    #[tokio::test]
    async fn a_deadline_that_is_over_is_no_outage() {
        virtual_time();
        let breaker = BreakerSettings { failures: 1, ..BreakerSettings::default() };
        let weir = Client::builder("unix:/nowhere").breaker(breaker).lease(true).build().expect("a client");
        // The third check requests a lease.
        for _ in 0..3 {
            let error = weir.check(Check::new(["api"]).deadline(Duration::ZERO)).await.expect_err("over");
            assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
        }
        // The task of the leases runs meanwhile.
        sleep(DEADLINE).await;
        assert_eq!(weir.breaker_state(), BreakerState::Closed);
    }

    #[tokio::test]
    async fn without_a_service_the_first_error_is_returned() {
        virtual_time();
        let dir = tempfile::tempdir().expect("a directory");
        for (retries, waits) in [(0, false), (1, true), (3, true)] {
            let started = Instant::now();
            let error = client(&dir.path().join("weir.sock"), retries).check(["api"]).await.expect_err("no service");
            assert!(matches!(&error, Error::Unavailable(why) if why.contains("No such file")), "{error:?}");
            assert_eq!(started.elapsed() >= DEADLINE, waits, "{retries}: {:?}", started.elapsed());
        }
    }
}
