//! Background renewals, on the store's thread.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};

use super::{Shared, entry::Lease};
use crate::redis::RedisStore;
use weir_core::{
    domain::{Clock as _, Micros},
    hold::Renewal,
};
use weir_telemetry::Causes;

/// Interval of the renewal task: less than half of the shortest hold, as [`weir_core::hold`] requires.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between sweeps of idle leases.
const TICKS_PER_SWEEP: u64 = 50;

impl Shared {
    /// Sends a renewal in the background.
    pub(super) fn send(self: &Arc<Self>, lease: Arc<Lease>, renewal: Renewal, sent: Micros) {
        self.io.tasks.spawn(Arc::clone(self).renew(lease, renewal, sent));
    }

    /// Sends a renewal and passes the result to the lease.
    pub(super) async fn renew(self: Arc<Self>, lease: Arc<Lease>, renewal: Renewal, sent: Micros) {
        match RedisStore::send_renewal(&self.io, &lease.renewal_plan, &renewal).await {
            Ok((decisions, grant)) => {
                let burnt = lease.renewed(&decisions, &grant, (sent, self.clock.now()), false);
                self.metrics.renewed(&grant, burnt);
            }
            Err(error) => {
                self.metrics.lost();
                tracing::debug!(error = %Causes(&error), "a lease was not renewed");
                lease.lost(&renewal);
            }
        }
    }
}

/// Renews leases that are due although nothing is spent, closes those of older policy versions, and removes idle ones.
pub(super) async fn run(shared: Arc<Shared>) {
    let (mut ticks, mut number) = (interval(TICK), 0_u64);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        number += 1;
        let now = shared.clock.now();
        let (mut due, mut held) = (Vec::new(), 0);
        let newest = shared.policy_version.load(Relaxed);
        for (name, lease) in &shared.table.pin() {
            let renewal = if name.policy_version < newest { lease.close(now) } else { lease.renewal_if_due(now) };
            held += lease.units();
            due.extend(renewal.map(|renewal| (Arc::clone(lease), renewal)));
        }
        for (lease, renewal) in due {
            shared.send(lease, renewal, now);
        }
        if number.is_multiple_of(TICKS_PER_SWEEP) {
            let table = shared.table.pin();
            for (name, lease) in &table {
                let is_over = name.policy_version < newest || lease.close_if_idle(now);
                if is_over && table.remove(name).is_some() {
                    shared.weight.fetch_sub(name.weight(), Relaxed);
                }
            }
        }
        shared.metrics.held(shared.table.len(), held);
    }
}
