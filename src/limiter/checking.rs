//! The outcome of a request: ready where the store decides on the spot, else a future.

use std::future::{IntoFuture, Ready, ready};

use futures_util::future::{BoxFuture, Either};
use weir_core::plan::Plan;
use weir_store::{Remote, Store};

use super::{Answer, CheckError, Limiter, Request, Snapshot};

/// The outcome of a request. `.await` gives it whether it is ready or not.
#[must_use = "a request that waits is not decided yet"]
pub enum Checking<'l, 'a, S> {
    /// Decided, or refused as invalid.
    Ready(Result<Answer<'a>, CheckError>),
    /// Decided once awaited; nothing happens before.
    Waiting(Waiting<'l, 'a, S>),
}

/// A request whose plan a remote store decides.
pub struct Waiting<'l, 'a, S> {
    pub(super) limiter: &'l Limiter<S>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) request: &'a Request<'a>,
    pub(super) plan: Plan<'a>,
    pub(super) store: &'l dyn Remote,
}

impl<'a, S: Store> Waiting<'_, 'a, S> {
    async fn outcome(self) -> Result<Answer<'a>, CheckError> {
        let verdict = self.store.verdict(&self.plan).await?;
        let mut answer = Answer::default();
        self.limiter.conclude(self.snapshot, self.request, &self.plan, &verdict, &mut answer);
        Ok(answer)
    }
}

impl<'l, 'a: 'l, S: Store> IntoFuture for Checking<'l, 'a, S> {
    type Output = Result<Answer<'a>, CheckError>;
    type IntoFuture = Either<Ready<Self::Output>, BoxFuture<'l, Self::Output>>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Self::Ready(outcome) => Either::Left(ready(outcome)),
            Self::Waiting(waiting) => Either::Right(Box::pin(waiting.outcome())),
        }
    }
}
