use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_core::{
    domain::Micros,
    hold::{Balance, ClientLease},
};

use super::message;
use crate::{
    Decision,
    proto::{CheckRequest, CheckResponse},
    telemetry::Telemetry,
};

/// A map key: a check compared by its domain and key only.
#[derive(Clone)]
pub(super) struct ByKey(pub(super) Arc<CheckRequest>);

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.domain, &self.0.key).hash(state);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        (&self.0.domain, &self.0.key) == (&other.0.domain, &other.0.key)
    }
}

impl Eq for ByKey {}

/// The lease of one key.
pub(super) struct Entry {
    pub(super) key: Arc<CheckRequest>,
    /// A random holder ID: lease numbers start at 1 again when the entry of a key is recreated.
    pub(super) holder: [u8; 16],
    pub(super) balance: Balance,
    lease: Mutex<ClientLease>,
    /// The cost of the last check that the service refused and the time at which it passes; `None` after an allowed
    /// check.
    refused: Mutex<Option<(i64, Micros)>>,
    /// Decisions of the lease that the metrics do not count yet: refused, allowed.
    decided: [AtomicU64; 2],
}

impl Entry {
    pub(super) fn new(key: &ByKey) -> Arc<Self> {
        Arc::new(Self {
            key: Arc::clone(&key.0),
            holder: rand::random(),
            balance: Balance::default(),
            lease: Mutex::default(),
            refused: Mutex::default(),
            decided: Default::default(),
        })
    }

    pub(super) fn lease(&self) -> MutexGuard<'_, ClientLease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the service's decision about a check of this cost.
    pub(super) fn decided_by_service(&self, cost: i64, decision: &CheckResponse, now: Micros) {
        let refused = match message::micros(decision.retry_after.as_ref()) {
            _ if decision.allowed => None,
            Some(after) => Some((cost, now.saturating_add(after))),
            None => return,
        };
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    /// Allows a check that was paid from the held units.
    pub(super) fn allow(&self) -> Decision {
        self.decide(true, None)
    }

    /// Refuses a check, to be retried after `retry_after`; or later, when the service named a later time for a check
    /// that does not cost more.
    pub(super) fn refuse(&self, cost: i64, retry_after: Micros, now: Micros) -> Decision {
        let refused = *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let told = refused.filter(|(refused, _)| cost >= *refused).map_or(0, |(_, passes_at)| passes_at - now);
        self.decide(false, Some(message::time(retry_after.max(told))))
    }

    fn decide(&self, allowed: bool, retry_after: Option<Duration>) -> Decision {
        self.decided[usize::from(allowed)].fetch_add(1, Relaxed);
        Decision::leased(allowed, self.balance.units(), retry_after)
    }

    /// Adds the decisions since the last call to the metrics.
    pub(super) fn tell(&self, telemetry: &Telemetry) {
        for (allowed, count) in [false, true].into_iter().zip(&self.decided) {
            let count = count.swap(0, Relaxed);
            if count > 0 {
                telemetry.count_leased(&self.key.domain, allowed, count);
            }
        }
    }
}
