//! The use case: which limits does a request meet, what do they decide together, what is the answer.

mod checking;
pub mod descriptors;
mod follow;
mod look;
pub mod rehearsal;
pub mod request;
pub mod status;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;
use thiserror::Error;
use weir_core::{
    domain::{Decision, Micros, Summary, aggregate},
    plan::{Level, Limit, Plan},
};
use weir_policy::Policy;
use weir_store::{Decide, ResetDone, Store, StoreError, Verdict};

use crate::telemetry::{HotKeys, Meters, Metrics};
pub use checking::{Checking, Waiting};
pub use descriptors::{Descriptor, DescriptorsRequest, Override, Resolved};
pub use rehearsal::Rehearsal;
pub use request::{Invalid, Request};
pub use status::{Shown, Status, Statuses};

/// Decides requests by the policy in force, over one store.
pub struct Limiter<S> {
    store: S,
    current: ArcSwap<Snapshot>,
    metrics: Arc<Metrics>,
    hot_keys: Option<HotKeys>,
}

/// A policy with its counters. A request holds on to the one it began with.
pub struct Snapshot {
    /// The policy.
    pub policy: Policy,
    /// What it counts.
    pub meters: Meters,
    /// Told apart from every other policy of this process by it.
    pub version: u64,
}

/// The answer to one request; by default to one that met no limit.
#[derive(Debug, Default)]
pub struct Answer<'a> {
    /// The answer over all levels that count.
    pub summary: Summary,
    /// What each level said, root first.
    pub levels: SmallVec<[LevelAnswer<'a>; 4]>,
    /// Decided without the shared store.
    pub degraded: bool,
    /// The number of the domain in its policy, where that defines it.
    pub domain: Option<u32>,
}

/// What one level said.
#[derive(Debug)]
pub struct LevelAnswer<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// How many segments it covers.
    pub depth: u8,
    /// What it decided.
    pub decision: Decision,
    /// Its window, under the request's factor: see [`Algorithm::window`](weir_core::algorithm::Algorithm::window).
    pub window: Micros,
}

/// Why a request has no answer.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The request is not valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No policy defines the domain.
    #[error("no policy defines the domain `{0}`")]
    UnknownDomain(String),
    /// The domain's policy forbids limits of requests.
    #[error("the policy of the domain `{0}` does not let requests bring limits of their own")]
    SpecDenied(String),
    /// The store has no answer.
    #[error("the store failed")]
    Store(#[from] StoreError),
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

static VERSIONS: AtomicU64 = AtomicU64::new(0);

impl Snapshot {
    fn new(policy: Policy, metrics: &Metrics) -> Self {
        let mut limits: Vec<_> = policy.limits().collect();
        limits.sort_by_key(|(_, limit)| limit.index);
        let limits = limits.into_iter().map(|(domain, limit)| (&*domain.name, &*limit.name));
        let mut domains: Vec<_> = policy.domains().collect();
        domains.sort_by_key(|domain| domain.index);
        let meters = Meters::new(metrics, domains.into_iter().map(|domain| &*domain.name), limits);
        Self { policy, meters, version: VERSIONS.fetch_add(1, Ordering::Relaxed) }
    }

    #[inline]
    fn count_degraded(&self, plan: &Plan<'_>, verdict: &Verdict) {
        if verdict.degraded {
            self.meters.degraded(plan.domain, plan.on_store_failure);
        }
    }
}

impl<'a> Answer<'a> {
    /// Fills in what was decided on these levels of a plan, and passes each decision to `count`.
    #[inline]
    fn fill(&mut self, plan: &Plan<'a>, levels: &[Level<'a>], verdict: &Verdict, count: impl Fn(&Limit, &Decision)) {
        for (level, &decision) in levels.iter().zip(&verdict.decisions) {
            let (limit, window) = (level.limit, level.params().window());
            count(limit, &decision);
            self.levels.push(LevelAnswer { limit, depth: level.depth, decision, window });
        }
        self.summary = aggregate(self.levels.iter().map(|level| (&level.decision, level.limit.shadow)));
        (self.domain, self.degraded) = (plan.domain, verdict.degraded);
    }
}
