//! The policy in force, with its counters.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use weir_core::plan::{Overridden, Plan};
use weir_policy::{Overrides, Policy};
use weir_store::Verdict;

use crate::telemetry::{Metrics, PolicyCounters};

/// A policy with its counters. A request keeps the handle that it started with.
pub struct PolicyHandle {
    /// The policy.
    pub policy: Policy,
    /// Its counters.
    pub counters: Arc<PolicyCounters>,
    /// Unique among all policies of this process.
    pub version: u64,
}

fn next_version() -> u64 {
    static VERSIONS: AtomicU64 = AtomicU64::new(0);
    VERSIONS.fetch_add(1, Ordering::Relaxed)
}

impl PolicyHandle {
    pub(super) fn new(policy: Policy, metrics: &Metrics) -> Self {
        let mut limits: Vec<_> = policy.limits().collect();
        limits.sort_by_key(|(_, limit)| limit.index);
        let limits = limits.into_iter().map(|(domain, limit)| (&*domain.name, &*limit.name));
        let mut domains: Vec<_> = policy.domains().collect();
        domains.sort_by_key(|domain| domain.index);
        let counters = Arc::new(PolicyCounters::new(metrics, domains.into_iter().map(|domain| &*domain.name), limits));
        Self { policy, counters, version: next_version() }
    }

    /// Returns the same policy under other overrides. The new version invalidates leases and cached refusals of the old
    /// one.
    pub(super) fn overridden(&self, overrides: Overrides) -> Self {
        let (policy, counters) = (self.policy.overridden(overrides), Arc::clone(&self.counters));
        Self { policy, counters, version: next_version() }
    }

    /// Counts a request that an override acted on, or that is `unmatched`.
    #[inline]
    pub(super) fn count_overridden(
        &self,
        domain: Option<u32>,
        overridden: Option<Overridden<'_>>,
        unmatched: impl FnOnce() -> bool,
    ) {
        match overridden {
            Some(overridden) => self.counters.overridden(domain, overridden.change),
            None if unmatched() => self.counters.unmatched(domain),
            None => {}
        }
    }

    #[inline]
    pub(super) fn count_degraded(&self, plan: &Plan<'_>, verdict: &Verdict) {
        if verdict.degraded {
            self.counters.degraded(plan.domain, plan.on_store_failure);
        }
    }
}
