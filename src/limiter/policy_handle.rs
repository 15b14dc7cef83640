//! The policy in force.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_core::plan::Plan;
use weir_policy::Policy;
use weir_store::Verdict;

use crate::telemetry::{Meters, Metrics};

/// A policy with its counters. A request holds on to the one it began with.
pub struct PolicyHandle {
    /// The policy.
    pub policy: Policy,
    /// Its counters.
    pub meters: Meters,
    /// Told apart from every other policy of this process by it.
    pub version: u64,
}

static VERSIONS: AtomicU64 = AtomicU64::new(0);

impl PolicyHandle {
    pub(super) fn new(policy: Policy, metrics: &Metrics) -> Self {
        let mut limits: Vec<_> = policy.limits().collect();
        limits.sort_by_key(|(_, limit)| limit.index);
        let limits = limits.into_iter().map(|(domain, limit)| (&*domain.name, &*limit.name));
        let mut domains: Vec<_> = policy.domains().collect();
        domains.sort_by_key(|domain| domain.index);
        let meters = Meters::new(metrics, domains.into_iter().map(|domain| &*domain.name), limits);
        Self { policy, meters, version: VERSIONS.fetch_add(1, Ordering::Relaxed) }
    }

    #[inline]
    pub(super) fn count_degraded(&self, plan: &Plan<'_>, verdict: &Verdict) {
        if verdict.degraded {
            self.meters.degraded(plan.domain, plan.on_store_failure);
        }
    }
}
