//! The policy in force.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use weir_core::plan::{Overridden, Plan};
use weir_policy::{Overrides, Policy};
use weir_store::Verdict;

use crate::telemetry::{Meters, Metrics};

/// A policy with its counters. A request holds on to the one it began with.
pub struct PolicyHandle {
    /// The policy.
    pub policy: Policy,
    /// Its counters.
    pub meters: Arc<Meters>,
    /// Told apart from every other policy of this process by it.
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
        let meters = Arc::new(Meters::new(metrics, domains.into_iter().map(|domain| &*domain.name), limits));
        Self { policy, meters, version: next_version() }
    }

    /// The same policy under other overrides. What is leased or known by the version before is asked for anew.
    pub(super) fn overridden(&self, overrides: Overrides) -> Self {
        let (policy, meters) = (self.policy.overridden(overrides), Arc::clone(&self.meters));
        Self { policy, meters, version: next_version() }
    }

    /// Counts a request on which an override acted, or which is `unmatched`.
    #[inline]
    pub(super) fn count_overridden(
        &self,
        domain: Option<u32>,
        overridden: Option<Overridden<'_>>,
        unmatched: impl FnOnce() -> bool,
    ) {
        match overridden {
            Some(overridden) => self.meters.overridden(domain, overridden.change),
            None if unmatched() => self.meters.unmatched(domain),
            None => {}
        }
    }

    #[inline]
    pub(super) fn count_degraded(&self, plan: &Plan<'_>, verdict: &Verdict) {
        if verdict.degraded {
            self.meters.degraded(plan.domain, plan.on_store_failure);
        }
    }
}
