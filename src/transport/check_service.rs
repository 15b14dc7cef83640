//! The check service: decides, counts and times checks for every surface, between decoding and encoding.

mod check_all;
mod leases;
mod outcomes;
mod reservations;

use std::{
    future::{self, IntoFuture},
    sync::Arc,
    time::Instant,
};

use futures_util::future::{BoxFuture, Either};
use scopeguard::ScopeGuard;
use weir_core::{algorithm::Bounds, domain::Micros};
use weir_server::{ConcurrencyLimit, Overload, Permit};
use weir_store::{ResetDone, Store};

use super::{audit::Actor, decode, idempotency::IdempotencySettings, message::CheckMessage, status::Rejected};
use crate::{
    limiter::{Answer, CheckError, Fill, Invalid, Limiter, PendingCheck, PolicyHandle, Request},
    telemetry::CallKind,
};

pub use leases::LeaseAnswer;
use outcomes::{by_itself, count};
pub use reservations::Settlement;

/// Decides checks for the surfaces.
pub struct CheckService<S> {
    limiter: Arc<Limiter<S>>,
    bounds: Bounds,
    permits: ConcurrencyLimit,
    /// Whether checks are reported to the request context.
    pub is_observed: bool,
    /// Time for which the answer to a request with an id is remembered.
    pub repeat_window: Micros,
}

/// The answer to a check, encoded by its surface. A batch awaits it directly; other calls use [`CheckService::answer`].
#[must_use = "a check that waits is not decided yet"]
pub enum PendingAnswer<'a, T> {
    /// Decided.
    Ready(T),
    /// A future that decides the check; nothing happens before its first poll.
    Waiting(BoxFuture<'a, T>),
}

impl<'a, T> IntoFuture for PendingAnswer<'a, T> {
    type Output = T;
    type IntoFuture = Either<future::Ready<T>, BoxFuture<'a, T>>;

    #[inline]
    fn into_future(self) -> Self::IntoFuture {
        match self {
            Self::Ready(answer) => Either::Left(future::ready(answer)),
            Self::Waiting(answer) => Either::Right(answer),
        }
    }
}

impl<S> Clone for CheckService<S> {
    fn clone(&self) -> Self {
        let (limiter, permits) = (Arc::clone(&self.limiter), self.permits.clone());
        let Self { bounds, is_observed, repeat_window, .. } = *self;
        Self { limiter, permits, bounds, is_observed, repeat_window }
    }
}

impl<S: Store> CheckService<S> {
    /// Returns a service over `limiter`. Limits that clients specify must stay within `bounds`.
    pub fn new(limiter: Arc<Limiter<S>>, bounds: Bounds) -> Self {
        let permits = ConcurrencyLimit::unbounded();
        let repeat_window = IdempotencySettings::default().window.0;
        Self { limiter, bounds, permits, is_observed: false, repeat_window }
    }

    #[inline]
    fn request<'m>(&self, message: &CheckMessage<'m>) -> Result<Request<'m>, Invalid> {
        decode::check(message, &self.bounds, self.repeat_window)
    }

    /// Makes decisions take one of these permits while they wait for the store.
    #[must_use]
    pub fn with_permits(self, permits: ConcurrencyLimit) -> Self {
        Self { permits, ..self }
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Decides the check in these bytes and counts its outcome. `encode` makes the surface's answer from the decision
    /// or the error, and from whether the client wants the summary only.
    #[inline]
    pub fn check<'a, T: 'a>(
        &self,
        handle: &Arc<PolicyHandle>,
        bytes: Result<&[u8], Invalid>,
        transport: CallKind,
        encode: impl FnOnce(Result<&Answer<'_>, Rejected>, bool) -> T + Send + 'a,
    ) -> PendingAnswer<'a, T> {
        let is_observed = self.is_observed;
        let read = match bytes {
            Ok(bytes) => CheckMessage::read(bytes),
            Err(invalid) => Err(invalid),
        };
        let summary_only = read.as_ref().is_ok_and(|message| message.summary_only);
        let request = match read {
            Ok(ref message) => self.request(message),
            Err(invalid) => Err(invalid),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.failed(handle, None, transport);
                return PendingAnswer::Ready(encode(Err(error.into()), summary_only));
            }
        };
        // By reference: moving an answer costs as much time as a part of the decision.
        let conclude = move |handle: &PolicyHandle, request: &Request<'_>, outcome: Result<&Answer<'_>, CheckError>| {
            let answer = by_itself(outcome.as_ref().ok().copied());
            count(handle, transport, request, answer, is_observed);
            encode(outcome.map_err(Rejected::from), summary_only)
        };
        {
            let mut answer = Answer::default();
            match self.limiter.start_check(handle, &request, &mut answer) {
                PendingCheck::Ready(Ok(())) => return PendingAnswer::Ready(conclude(handle, &request, Ok(&answer))),
                PendingCheck::Ready(Err(error)) => return PendingAnswer::Ready(conclude(handle, &request, Err(error))),
                PendingCheck::Waiting(..) => {}
            }
        }
        // The future owns its data, so that a stream can keep it. The plan borrows, so it is built again.
        let (limiter, handle, request) = (Arc::clone(&self.limiter), Arc::clone(handle), request.into_owned());
        PendingAnswer::Waiting(Box::pin(async move {
            match limiter.check(&handle, &request).await {
                Ok(answer) => conclude(&handle, &request, Ok(&answer)),
                Err(error) => conclude(&handle, &request, Err(error)),
            }
        }))
    }

    /// Acquires a permit for a decision that waits for the store. Nothing else takes permits, so idle streams and calls
    /// whose message has not arrived cannot delay decisions.
    ///
    /// # Errors
    /// [`Overload`] if too many decisions wait.
    #[inline]
    pub fn permit(&self) -> Result<Permit, Overload> {
        self.permits.acquire()
    }

    /// Acquires a permit for checks that wait. Without one, a check is counted as failed.
    ///
    /// # Errors
    /// [`Overload`] if too many decisions wait.
    pub fn check_permit(&self, handle: &PolicyHandle, transport: CallKind) -> Result<Permit, Overload> {
        self.permit().inspect_err(|_| self.failed(handle, None, transport))
    }

    /// Returns the answer to the only check of a call. It takes a permit if it waits for the store.
    ///
    /// # Errors
    /// [`Overload`] if too many decisions wait.
    #[inline]
    pub async fn answer<T>(
        &self,
        handle: &PolicyHandle,
        pending: PendingAnswer<'_, T>,
        transport: CallKind,
    ) -> Result<T, Overload> {
        match pending {
            PendingAnswer::Ready(answer) => Ok(answer),
            PendingAnswer::Waiting(answer) => {
                let _permit = self.check_permit(handle, transport)?;
                Ok(answer.await)
            }
        }
    }

    /// Returns the outcome of a request. It takes a permit if it waits for the store.
    ///
    /// # Errors
    /// [`Rejected`] if the request fails, or if too many decisions wait.
    pub async fn outcome<'a, T: Default, F: Fill<'a, T>>(
        &self,
        handle: &PolicyHandle,
        pending: PendingCheck<'_, 'a, T, F>,
    ) -> Result<T, Rejected> {
        let _permit = match &pending {
            PendingCheck::Ready(_) => None,
            PendingCheck::Waiting(..) => Some(self.permit()?),
        };
        Ok(pending.outcome(handle).await?)
    }

    /// Resets a key for `actor` and, with `subtree`, all keys below it. Writes a line to the audit log.
    ///
    /// # Errors
    /// [`Rejected`] if the store fails, and if too many decisions wait.
    pub async fn reset(&self, request: &Request<'_>, subtree: bool, actor: &Actor) -> Result<ResetDone, Rejected> {
        self.report_domain(&self.limiter.policy(), request);
        let _permit = self.permit()?;
        let log = |done: Result<&ResetDone, &str>| actor.log_reset(&request.domain, &request.key, subtree, done);
        let ended = scopeguard::guard((), |()| log(Err("the call ended before the store: it may reset the key yet")));
        let done = self.limiter.reset(request, subtree).await.map_err(Rejected::from);
        ScopeGuard::into_inner(ended);
        log(done.as_ref().map_err(|rejected| rejected.message.as_str()));
        done
    }

    /// Records the duration of an answer.
    pub fn timed(&self, transport: CallKind, since: Instant) {
        self.timed_all(transport, since, 1);
    }

    /// Records the durations of answers that were made one after the other, each with their average.
    pub fn timed_all(&self, transport: CallKind, since: Instant, answers: u32) {
        let each = since.elapsed() / answers.max(1);
        self.limiter.metrics().check_duration(transport).record_times(each, answers);
    }
}
