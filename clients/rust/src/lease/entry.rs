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

/// A check, known by its domain and key alone.
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
    /// Drawn for each entry: one that is made anew for the same key numbers its leases from 1 again.
    pub(super) holder: [u8; 16],
    pub(super) balance: Balance,
    lease: Mutex<ClientLease>,
    /// The cost of a check that the service refused, and when it passes, as it said; `None` if it has allowed one since.
    refused: Mutex<Option<(i64, Micros)>>,
    /// Decisions of the lease that are not yet in the metrics: refused, allowed.
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

    /// The service has decided a check of this cost.
    pub(super) fn decided_by_service(&self, cost: i64, decision: &CheckResponse, now: Micros) {
        let refused = match message::micros(decision.retry_after.as_ref()) {
            _ if decision.allowed => None,
            Some(after) => Some((cost, now.saturating_add(after))),
            None => return,
        };
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    /// A check that is paid by what is held.
    pub(super) fn allow(&self) -> Decision {
        self.decide(true, None)
    }

    /// A check that is refused here, and may be asked again after so long. It passes when the service said so of one that costs no
    /// more, if that is later.
    pub(super) fn refuse(&self, cost: i64, retry_after: Micros, now: Micros) -> Decision {
        let refused = *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let told = refused.filter(|(refused, _)| cost >= *refused).map_or(0, |(_, passes_at)| passes_at - now);
        self.decide(false, Some(message::time(retry_after.max(told))))
    }

    fn decide(&self, allowed: bool, retry_after: Option<Duration>) -> Decision {
        self.decided[usize::from(allowed)].fetch_add(1, Relaxed);
        Decision::leased(allowed, self.balance.units(), retry_after)
    }

    /// Tells what was decided since the last time.
    pub(super) fn tell(&self, telemetry: &Telemetry) {
        for (allowed, count) in [false, true].into_iter().zip(&self.decided) {
            let count = count.swap(0, Relaxed);
            if count > 0 {
                telemetry.count_leased(&self.key.domain, allowed, count);
            }
        }
    }
}
