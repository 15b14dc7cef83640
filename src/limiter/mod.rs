//! The use case: resolves the limits of a request, has the store decide them together, and returns the answer.

mod answer;
pub mod check_all;
mod decide;
pub mod descriptors;
mod error;
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
pub mod totals;

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use weir_core::{
    hold::Idempotency,
    plan::{Level, Plan},
};
use weir_policy::{Overrides, Policy};
use weir_store::{Decide, ResetDone, Store, Verdict};

use crate::telemetry::{HotKeys, Metrics, RecentChecks};
pub use answer::{Answer, LevelAnswer};
pub use check_all::{AllAnswers, CheckAll};
pub use decide::{Fill, PendingCheck};
use decide::{decide_in_store, ensure_no_conflict, verdict};
pub use descriptors::{Descriptor, DescriptorLimit, DescriptorsRequest, Resolved};
pub use error::{CheckError, Invalid};
pub use leases::Leased;
pub use policy_handle::PolicyHandle;
pub use request::Request;
use request::ensure_checkable;
pub use reservations::{Reserved, Settle, SettleOutcome};
pub use simulation::Simulation;
pub use status::{DescriptorAnswer, DescriptorAnswers, DisplayedLimit};

/// Decides requests by the policy in force, over one store.
pub struct Limiter<S> {
    store: S,
    current: ArcSwap<PolicyHandle>,
    /// Locked while the policy or its overrides are replaced.
    replacing: Mutex<()>,
    metrics: Arc<Metrics>,
    hot_keys: Option<HotKeys>,
    recent_checks: Option<RecentChecks>,
}

impl<S: Store> Limiter<S> {
    /// Returns a limiter over `store`, with `policy` in force.
    pub fn new(store: S, policy: Policy, metrics: Arc<Metrics>) -> Self {
        let handle = PolicyHandle::new(policy, &metrics);
        let (current, replacing) = (ArcSwap::from_pointee(handle), Mutex::default());
        Self { store, current, replacing, metrics, hot_keys: None, recent_checks: None }
    }

    /// Enables sampling of hot keys and, with `recent_checks`, recording of the checks of the last minutes.
    #[must_use]
    pub fn sampling(self, keys: HotKeys, recent_checks: Option<RecentChecks>) -> Self {
        Self { hot_keys: Some(keys), recent_checks, ..self }
    }

    /// Returns the hot keys, if they are sampled.
    pub fn hot_keys(&self) -> Option<&HotKeys> {
        self.hot_keys.as_ref()
    }

    /// Returns the checks of the last minutes, if they are recorded.
    pub fn recent_checks(&self) -> Option<&RecentChecks> {
        self.recent_checks.as_ref()
    }

    /// Applies another policy to every request that starts from now on. The overrides stay in force.
    pub fn replace_policy(&self, policy: Policy) {
        let _replacing = self.replacing.lock();
        let policy = policy.overridden(self.current.load().policy.overrides().without_cache());
        self.current.store(Arc::new(PolicyHandle::new(policy, &self.metrics)));
    }

    /// Applies changed overrides to every request that starts from now on.
    pub fn change_overrides(&self, change: impl FnOnce(&mut Overrides)) {
        let _replacing = self.replacing.lock();
        let current = self.current.load();
        let mut overrides = current.policy.overrides().clone();
        change(&mut overrides);
        self.current.store(Arc::new(current.overridden(overrides)));
    }

    /// Returns the policy in force, to be kept while a request is answered.
    pub fn policy(&self) -> Arc<PolicyHandle> {
        self.current.load_full()
    }

    /// Like [`Limiter::policy`], for a short time: this does not change the reference count, which all threads would
    /// contend for.
    #[inline]
    pub fn policy_guard(&self) -> Guard<Arc<PolicyHandle>> {
        self.current.load()
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the service's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Decides a request. A refusal is an answer, not an error. A dry run is counted only by the check service.
    ///
    /// # Errors
    /// [`CheckError`] if the request is invalid or the store fails.
    pub async fn check<'a>(
        &self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
    ) -> Result<Answer<'a>, CheckError> {
        let (store, plan) = {
            let mut answer = Answer::default();
            match self.start_check(handle, request, &mut answer) {
                PendingCheck::Ready(decided) => return decided.map(|()| answer),
                PendingCheck::Waiting(store, plan, ()) => (store, plan),
            }
        };
        let verdict = verdict(store, &plan, handle).await?;
        ensure_no_conflict(&verdict)?;
        // Created only now, so that the future does not hold space for it while it waits.
        let mut answer = Answer::default();
        self.conclude(handle, request, &plan, &verdict, &mut answer);
        Ok(answer)
    }

    /// The synchronous part of [`Limiter::check`]: if the store decides immediately, fills in `answer`, which must be
    /// [`Answer::default`]. Plan, verdict and answer stay in place: moving each costs as much time as a part of the
    /// decision.
    #[inline]
    pub fn start_check<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        answer: &mut Answer<'a>,
    ) -> PendingCheck<'l, 'a, (), ()> {
        let (mut plan, mut verdict) = (Plan::default(), Verdict::default());
        let planned = request.plan_into(&mut plan, &handle.policy, handle.version, false);
        if let Err(error) = planned.and_then(|()| ensure_checkable(&plan)) {
            return PendingCheck::Ready(Err(error));
        }
        match decide_in_store(&self.store, &plan, &mut verdict) {
            Decide::Ready(verdict) => PendingCheck::Ready(
                ensure_no_conflict(verdict).map(|()| self.conclude(handle, request, &plan, verdict, answer)),
            ),
            Decide::Waiting(store) => PendingCheck::Waiting(store, plan, ()),
        }
    }

    /// Fills in the answer to a decided check, and counts it.
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
        if verdict.idempotency == Idempotency::Repeated {
            handle.counters.repeated(plan.domain);
        }
        handle.count_overridden(plan.domain, plan.overridden, || {
            plan.levels().is_empty() && !request.is_matched(&handle.policy)
        });
        let decided = plan.levels().iter().zip(&verdict.decisions).zip(verdict.effects(plan));
        for ((Level { limit, .. }, decision), effect) in decided {
            let index = request.spec.is_none().then_some(limit.index);
            handle.counters.limit(index, decision, limit.shadow || plan.is_shadow, effect);
        }
        answer.fill(plan, plan.levels(), verdict);
        self.sample(request, answer);
    }

    /// Resets a key and, with `subtree`, all keys below it. A key that counts together with other keys is reset together
    /// with them. It has states of its own too, by limits in requests and in descriptors.
    ///
    /// # Errors
    /// [`CheckError`] if the store fails.
    pub async fn reset(&self, request: &Request<'_>, subtree: bool) -> Result<ResetDone, CheckError> {
        let handle = self.policy();
        let anchor = request.anchor(&handle.policy);
        let shared = handle.policy.domain(&request.domain).and_then(|domain| domain.shared_key(&request.key));
        let mut done = ResetDone::default();
        for key in shared.iter().chain([&request.key]) {
            done |= self.store.reset(key, anchor, subtree).await?;
        }
        Ok(done)
    }
}
