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
    /// The stream that carried the call has ended.
    pub(crate) fn stream_ended() -> Self {
        Self { error: Error::Unavailable("the stream has ended".to_owned()), unsent: false, lost: false }
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
        let permit = self.breaker.permit()?;
        let until = Instant::now() + deadline;
        let attempts = self.attempts(message, until, repeat, attempt);
        let late = |_| Err(Error::DeadlineExceeded(format!("no answer within {deadline:?}")));
        let result = timeout_at(until, attempts).await.unwrap_or_else(late);
        permit.record(result.as_ref().err());
        result
    }

    /// Adds the current token.
    pub(crate) fn authorize<M>(&self, request: &mut Request<M>) {
        if let Some(value) = self.token.value() {
            request.metadata_mut().insert("authorization", value);
        }
    }

    async fn attempts<M: Clone, T, F: Future<Output = Result<T, Failure>>>(
        &self,
        message: M,
        until: Instant,
        repeat: Repeat,
        attempt: impl Fn(Connection, Request<M>) -> F,
    ) -> Result<T, Error> {
        let (mut left, mut avoid) = (self.retries, None);
        loop {
            let connection = self.pool.ready(avoid.as_ref()).await?;
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
            avoid = Some(Avoid { connection, lost });
        }
    }
}
