//! One check as every surface runs it: decoded, decided, counted, timed.

use std::{sync::Arc, time::Instant};

use futures_util::future::join_all;

use crate::{
    algorithm::Bounds,
    limiter::{Answer, Invalid, Limiter, Snapshot},
    proto,
    store::Store,
    telemetry::{Outcome, Transport},
    transport::{decode, encode, status::Refused},
};

/// A check as a surface read it, or why it could not.
pub type Message = Result<proto::CheckRequest, Invalid>;

/// Runs checks for the surfaces.
pub struct Checks<S> {
    limiter: Arc<Limiter<S>>,
    bounds: Bounds,
}

impl<S> Clone for Checks<S> {
    fn clone(&self) -> Self {
        Self { limiter: Arc::clone(&self.limiter), bounds: self.bounds }
    }
}

impl<S: Store> Checks<S> {
    /// Checks by `limiter`, whose callers' limits stay within `bounds`.
    pub fn new(limiter: Arc<Limiter<S>>, bounds: Bounds) -> Self {
        Self { limiter, bounds }
    }

    /// The limiter.
    pub fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Answers one check and counts how it went.
    ///
    /// # Errors
    /// [`Refused`] when there is no decision.
    pub async fn check(
        &self,
        snapshot: &Snapshot,
        message: Message,
        transport: Transport,
    ) -> Result<proto::CheckResponse, Refused> {
        self.check_as(snapshot, message, transport, encode::check).await
    }

    /// The same, with the answer in a form of the surface's own. `encode` is told whether only the summary is wanted.
    ///
    /// # Errors
    /// [`Refused`] when there is no decision.
    pub async fn check_as<T>(
        &self,
        snapshot: &Snapshot,
        message: Message,
        transport: Transport,
        encode: impl FnOnce(&Answer<'_>, bool) -> T,
    ) -> Result<T, Refused> {
        let summary_only = message.as_ref().is_ok_and(|message| message.summary_only);
        let request = match message.and_then(|message| decode::check(message, &self.bounds)) {
            Ok(request) => request,
            Err(error) => {
                snapshot.meters.unknown_domain(transport, Outcome::Error);
                return Err(error.into());
            }
        };
        let answer = self.limiter.check(snapshot, &request).await;
        let outcome = match &answer {
            Ok(answer) if answer.summary.allowed => Outcome::Allowed,
            Ok(_) => Outcome::Limited,
            Err(_) => Outcome::Error,
        };
        snapshot.meters.check(&request.domain, transport, outcome);
        Ok(encode(&answer?, summary_only))
    }

    /// The same, with an error inside the answer instead of beside it.
    pub async fn check_in_place(
        &self,
        snapshot: &Snapshot,
        message: Message,
        transport: Transport,
    ) -> proto::CheckResponse {
        match self.check(snapshot, message, transport).await {
            Ok(answer) => answer,
            Err(refused) => proto::CheckResponse { error: Some(refused.into()), ..Default::default() },
        }
    }

    /// Answers several checks, each on its own: the answers in their order. Those of one key are decided in it too.
    pub async fn check_all(
        &self,
        snapshot: &Snapshot,
        messages: impl ExactSizeIterator<Item = Message>,
        transport: Transport,
    ) -> Vec<proto::CheckResponse> {
        let checks = messages.map(|message| self.check_in_place(snapshot, message, transport));
        if !self.limiter.store().decides_at_once() {
            // All at once, so that they share round trips. Each begins before the next.
            return join_all(checks).await;
        }
        let mut answers = Vec::with_capacity(checks.len());
        for check in checks {
            answers.push(check.await);
        }
        answers
    }

    /// Counts how long an answer took.
    pub fn timed(&self, transport: Transport, since: Instant) {
        self.limiter.metrics().check_duration(transport).record(since.elapsed());
    }
}
