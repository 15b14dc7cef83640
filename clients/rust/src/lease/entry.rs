use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_core::hold::{Balance, ClientLease};

use crate::{Decision, proto::CheckRequest, telemetry::Telemetry};

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
            decided: Default::default(),
        })
    }

    pub(super) fn lease(&self) -> MutexGuard<'_, ClientLease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The decision on a check that is decided here: refused where there is a time after which it is asked again.
    pub(super) fn decide(&self, retry_after: Option<Duration>) -> Decision {
        let allowed = retry_after.is_none();
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
