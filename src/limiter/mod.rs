//! The use case: which limits does a request meet, what do they decide together, what is the answer.

mod answer;
mod checking;
pub mod descriptors;
mod follow;
mod look;
mod policy_handle;
pub mod rehearsal;
pub mod request;
pub mod status;

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use weir_core::plan::Plan;
use weir_policy::Policy;
use weir_store::{Decide, ResetDone, Store, StoreError, Verdict};

use crate::telemetry::{HotKeys, Metrics};
pub use answer::{Answer, LevelAnswer};
pub use checking::{Checking, Waiting};
pub use descriptors::{Descriptor, DescriptorsRequest, Override, Resolved};
pub use policy_handle::Snapshot;
pub use rehearsal::Rehearsal;
pub use request::{CheckError, Invalid, Request};
pub use status::{Shown, Status, Statuses};

/// Decides requests by the policy in force, over one store.
pub struct Limiter<S> {
    store: S,
    current: ArcSwap<Snapshot>,
    metrics: Arc<Metrics>,
    hot_keys: Option<HotKeys>,
}

impl<S: Store> Limiter<S> {
    /// A limiter over `store`, with `policy` in force.
    pub fn new(store: S, policy: Policy, metrics: Arc<Metrics>) -> Self {
        let snapshot = Snapshot::new(policy, &metrics);
        Self { store, current: ArcSwap::from_pointee(snapshot), metrics, hot_keys: None }
    }

    /// The same, which also follows what keys are asked for.
    #[must_use]
    pub fn following(self, keys: HotKeys) -> Self {
        Self { hot_keys: Some(keys), ..self }
    }

    /// The keys that it follows, if it does.
    pub fn hot_keys(&self) -> Option<&HotKeys> {
        self.hot_keys.as_ref()
    }

    /// Puts another policy in force, for every request that begins from now on.
    pub fn replace_policy(&self, policy: Policy) {
        self.current.store(Arc::new(Snapshot::new(policy, &self.metrics)));
    }

    /// The policy in force, to be held while a request is answered.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// The same, for a moment: without counting who holds it, which all threads would do in one place.
    #[inline]
    pub fn current(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The service's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Decides a request. A refusal is an answer.
    #[inline]
    pub fn check<'l, 'a>(&'l self, snapshot: &'a Snapshot, request: &'a Request<'_>) -> Checking<'l, 'a, S> {
        let plan = match request.plan(&snapshot.policy, snapshot.version) {
            Ok(plan) => plan,
            Err(error) => return Checking::Ready(Err(error)),
        };
        match self.decide(&plan) {
            Decide::Ready(verdict) => {
                let mut answer = Answer::default();
                self.conclude(snapshot, request, &plan, &verdict, &mut answer);
                Checking::Ready(Ok(answer))
            }
            Decide::Waiting(store) => Checking::Waiting(Waiting { limiter: self, snapshot, request, plan, store }),
        }
    }

    /// Decides a plan. One without levels needs no store.
    #[inline]
    fn decide(&self, plan: &Plan<'_>) -> Decide<'_> {
        if plan.levels().is_empty() { Decide::Ready(Verdict::default()) } else { self.store.decide(plan) }
    }

    async fn verdict(&self, plan: &Plan<'_>) -> Result<Verdict, StoreError> {
        match self.decide(plan) {
            Decide::Ready(verdict) => Ok(verdict),
            Decide::Waiting(store) => store.verdict(plan).await,
        }
    }

    /// Fills in the answer to a request from the verdict on its plan, and counts what each limit decided.
    // In place: moving an answer takes as long as a part of the decision.
    fn conclude<'a>(
        &self,
        snapshot: &Snapshot,
        request: &Request<'_>,
        plan: &Plan<'a>,
        verdict: &Verdict,
        answer: &mut Answer<'a>,
    ) {
        snapshot.count_degraded(plan, verdict);
        answer.fill(plan, plan.levels(), verdict, |limit, decision| {
            let index = request.spec.is_none().then_some(limit.index);
            let near = decision.remaining.saturating_mul(5) < decision.limit;
            snapshot.meters.limit(index, decision.allowed, limit.shadow, near);
        });
        self.follow(request, answer);
    }

    /// Forgets a key, with `subtree` all below it too.
    ///
    /// # Errors
    /// [`CheckError`] when the store cannot tell.
    pub async fn reset(&self, request: &Request<'_>, subtree: bool) -> Result<ResetDone, CheckError> {
        let snapshot = self.snapshot();
        let anchor = request.anchor(&snapshot.policy);
        Ok(self.store.reset(&request.key, anchor, subtree).await?)
    }
}
