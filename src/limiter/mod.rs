//! The use case: which limits does a request meet, what do they decide together, what is the answer.

mod answer;
pub mod check_all;
mod decide;
pub mod descriptors;
mod leases;
mod policy_handle;
mod preview;
pub mod quota;
pub mod replay;
pub mod request;
mod reservations;
mod samples;
pub mod simulation;
pub mod status;
pub mod stored_holds;
pub mod stored_keys;
pub mod tallies;

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use weir_core::{
    hold::Repeat,
    plan::{Level, Plan},
};
use weir_policy::{Overrides, Policy};
use weir_store::{Decide, ResetDone, Store, Verdict};

use crate::telemetry::{HotKeys, Metrics, Traffic};
pub use answer::{Answer, LevelAnswer};
pub use check_all::{AllAnswers, CheckAll};
pub use decide::{Checking, Fill};
use decide::{ask, ensure_no_conflict, verdict};
pub use descriptors::{Descriptor, DescriptorLimit, DescriptorsRequest, Resolved};
pub use leases::Leased;
pub use policy_handle::PolicyHandle;
use request::ensure_checkable;
pub use request::{CheckError, Invalid, Request};
pub use reservations::{Reserved, Settle, Settled};
pub use simulation::Simulation;
pub use status::{DescriptorAnswer, DescriptorAnswers, Shown};

/// Decides requests by the policy in force, over one store.
pub struct Limiter<S> {
    store: S,
    current: ArcSwap<PolicyHandle>,
    /// Held while a part of it is replaced.
    replacing: Mutex<()>,
    metrics: Arc<Metrics>,
    hot_keys: Option<HotKeys>,
    traffic: Option<Traffic>,
}

impl<S: Store> Limiter<S> {
    /// A limiter over `store`, with `policy` in force.
    pub fn new(store: S, policy: Policy, metrics: Arc<Metrics>) -> Self {
        let handle = PolicyHandle::new(policy, &metrics);
        let (current, replacing) = (ArcSwap::from_pointee(handle), Mutex::default());
        Self { store, current, replacing, metrics, hot_keys: None, traffic: None }
    }

    /// The same, which also samples hot keys, and records the checks of the last minutes where `traffic` is there.
    #[must_use]
    pub fn sampling(self, keys: HotKeys, traffic: Option<Traffic>) -> Self {
        Self { hot_keys: Some(keys), traffic, ..self }
    }

    /// The hot keys, where they are sampled.
    pub fn hot_keys(&self) -> Option<&HotKeys> {
        self.hot_keys.as_ref()
    }

    /// The checks of the last minutes, where they are recorded.
    pub fn traffic(&self) -> Option<&Traffic> {
        self.traffic.as_ref()
    }

    /// Puts another policy in force, under the same overrides, for every request that begins from now on.
    pub fn replace_policy(&self, policy: Policy) {
        let _replacing = self.replacing.lock();
        let policy = policy.overridden(self.current.load().policy.overrides().anew());
        self.current.store(Arc::new(PolicyHandle::new(policy, &self.metrics)));
    }

    /// Changes the overrides in force, likewise.
    pub fn change_overrides(&self, change: impl FnOnce(&mut Overrides)) {
        let _replacing = self.replacing.lock();
        let current = self.current.load();
        let mut overrides = current.policy.overrides().clone();
        change(&mut overrides);
        self.current.store(Arc::new(current.overridden(overrides)));
    }

    /// The policy in force, to be held while a request is answered.
    pub fn policy_handle(&self) -> Arc<PolicyHandle> {
        self.current.load_full()
    }

    /// The same, for a moment: without counting who holds it, which all threads would do in one place.
    #[inline]
    pub fn current(&self) -> Guard<Arc<PolicyHandle>> {
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

    /// Decides a request. A refusal is an answer. Of a dry run only its number is counted, by the surface.
    ///
    /// # Errors
    /// [`CheckError`] where the request is invalid or the store fails.
    pub async fn check<'a>(
        &self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
    ) -> Result<Answer<'a>, CheckError> {
        let (store, plan) = {
            let mut answer = Answer::default();
            match self.begin_check(handle, request, &mut answer) {
                Checking::Ready(decided) => return decided.map(|()| answer),
                Checking::Waiting(store, plan, ()) => (store, plan),
            }
        };
        let verdict = verdict(store, &plan, handle).await?;
        ensure_no_conflict(&verdict)?;
        // Only now, so that what waits has no room for it.
        let mut answer = Answer::default();
        self.conclude(handle, request, &plan, &verdict, &mut answer);
        Ok(answer)
    }

    /// The part of [`Limiter::check`] that waits for nothing: fills in `answer`, which is [`Answer::default`] before, where the
    /// store decides at once. Plan, verdict and answer stay where they are: moving each takes as long as a part of the decision.
    #[inline]
    pub fn begin_check<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        answer: &mut Answer<'a>,
    ) -> Checking<'l, 'a, (), ()> {
        let (mut plan, mut verdict) = (Plan::default(), Verdict::default());
        let planned = request.plan_into(&mut plan, &handle.policy, handle.version, false);
        if let Err(error) = planned.and_then(|()| ensure_checkable(&plan)) {
            return Checking::Ready(Err(error));
        }
        match ask(&self.store, &plan, &mut verdict) {
            Decide::Ready(verdict) => Checking::Ready(
                ensure_no_conflict(verdict).map(|()| self.conclude(handle, request, &plan, verdict, answer)),
            ),
            Decide::Waiting(store) => Checking::Waiting(store, plan, ()),
        }
    }

    /// Fills in the answer to a check that is decided, and counts it.
    #[inline]
    fn conclude<'a>(
        &self,
        handle: &PolicyHandle,
        request: &Request<'_>,
        plan: &Plan<'a>,
        verdict: &Verdict,
        answer: &mut Answer<'a>,
    ) {
        if plan.dry_run {
            return answer.fill(plan, plan.levels(), verdict);
        }
        handle.count_degraded(plan, verdict);
        if verdict.repeat == Repeat::Again {
            handle.meters.repeated(plan.domain);
        }
        handle.count_overridden(plan.domain, plan.overridden, || {
            plan.levels().is_empty() && !request.is_matched(&handle.policy)
        });
        let decided = plan.levels().iter().zip(&verdict.decisions).zip(verdict.effects(plan));
        for ((Level { limit, .. }, decision), effect) in decided {
            let index = request.spec.is_none().then_some(limit.index);
            handle.meters.limit(index, decision, limit.shadow || plan.is_shadow, effect);
        }
        answer.fill(plan, plan.levels(), verdict);
        self.sample(request, answer);
    }

    /// Forgets a key, with `subtree` all below it too. A key that counts together with others is forgotten with them.
    ///
    /// # Errors
    /// [`CheckError`] when the store cannot tell.
    pub async fn reset(&self, request: &Request<'_>, subtree: bool) -> Result<ResetDone, CheckError> {
        let handle = self.policy_handle();
        let anchor = request.anchor(&handle.policy);
        let shared = handle.policy.domain(&request.domain).and_then(|domain| domain.shared_key(&request.key));
        Ok(self.store.reset(shared.as_ref().unwrap_or(&request.key), anchor, subtree).await?)
    }
}
