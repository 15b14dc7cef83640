//! A stream of checks: one answer for each, in order, read no faster than its answers are taken.

use std::time::Instant;

use futures_util::Stream;
use tonic::{Status, Streaming};

use super::{drain::Drain, observe::Checks, status::shutting_down};
use crate::{proto, store::Store, telemetry::Transport};

struct Open<S> {
    checks: Checks<S>,
    requests: Streaming<proto::CheckRequest>,
    drain: Drain,
}

/// The answers to a stream of requests. It ends with the requests, at the first that cannot be read, or with
/// UNAVAILABLE when the drain begins.
pub fn answers<S: Store>(
    checks: Checks<S>,
    requests: Streaming<proto::CheckRequest>,
    drain: Drain,
) -> impl Stream<Item = Result<proto::CheckResponse, Status>> + Send {
    futures_util::stream::unfold(Some(Open { checks, requests, drain }), |open| async {
        let mut open = open?;
        match open.next().await {
            Ok(answer) => Some((Ok(answer?), Some(open))),
            Err(status) => Some((Err(status), None)),
        }
    })
}

impl<S: Store> Open<S> {
    async fn next(&mut self) -> Result<Option<proto::CheckResponse>, Status> {
        // A client that never pauses would never let the select below look at the drain.
        if self.drain.has_begun() {
            return Err(shutting_down());
        }
        let message = tokio::select! {
            biased;
            message = self.requests.message() => message?,
            () = self.drain.begun() => return Err(shutting_down()),
        };
        let Some(message) = message else { return Ok(None) };
        let since = Instant::now();
        let snapshot = self.checks.limiter().snapshot();
        let answer = self.checks.check_in_place(&snapshot, message, Transport::GrpcStream).await;
        self.checks.timed(Transport::GrpcStream, since);
        Ok(Some(answer))
    }
}
