//! Background renewals, on the store's thread.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream};
use tokio::time::{MissedTickBehavior, interval};

use super::{Shared, entry::Lease};
use crate::{Failure, redis::RedisStore};
use weir_core::{
    domain::{Clock as _, Micros},
    hold::Renewal,
};
use weir_telemetry::Causes;

/// Interval of the renewal task: less than half of the shortest hold, as [`weir_core::hold`] requires.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between sweeps of idle leases.
const TICKS_PER_SWEEP: u64 = 50;

/// Most leases closed at once: a small part of a round trip's work. All at once would pass their deadlines in the
/// queue, and delay checks.
const MAX_CLOSINGS: usize = 64;

impl Shared {
    /// Sends a renewal in the background.
    pub(super) fn send(self: &Arc<Self>, lease: Arc<Lease>, renewal: Renewal, sent: Micros) {
        let shared = Arc::clone(self);
        self.io.tasks.spawn(async move { drop(shared.renew(&lease, renewal, sent).await) });
    }

    /// Sends a renewal and passes the result to the lease.
    async fn renew(&self, lease: &Lease, renewal: Renewal, sent: Micros) -> Result<(), Failure> {
        let served = RedisStore::send_renewal(&self.io, &lease.renewal_plan, &renewal).await;
        let (decisions, grant) = served.inspect_err(|error| {
            self.metrics.lost();
            tracing::debug!(error = %Causes(error), "a lease was not renewed");
            lease.lost(&renewal);
        })?;
        let burnt = lease.renewed(&decisions, &grant, (sent, self.clock.now()), false);
        self.metrics.renewed(&renewal, &grant, burnt);
        Ok(())
    }

    /// Closes leases, a few at a time. Yields the units given back of each; `None`: that is not known.
    pub(super) fn closings(&self, leases: Vec<Arc<Lease>>) -> impl Stream<Item = Option<u64>> {
        let close = async move |lease: Arc<Lease>| {
            let (now, units) = (self.clock.now(), lease.unsettled());
            match lease.close(now) {
                None => Some(0),
                Some(renewal) => self.renew(&lease, renewal, now).await.ok().map(|()| units),
            }
        };
        stream::iter(leases).map(close).buffer_unordered(MAX_CLOSINGS)
    }

    /// Closes leases in the background.
    fn close(self: &Arc<Self>, leases: Vec<Arc<Lease>>) {
        let shared = Arc::clone(self);
        self.io.tasks.spawn(async move {
            let _turn = shared.closing.lock().await;
            shared.closings(leases).for_each(async |_| {}).await;
        });
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
        let (mut due, mut over, mut held) = (Vec::new(), Vec::new(), 0);
        let (newest, closes) = (shared.policy_version.load(Relaxed), shared.closing.try_lock().is_ok());
        for (name, lease) in &shared.table.pin() {
            held += lease.units();
            if name.policy_version >= newest {
                due.extend(lease.renewal_if_due(now).map(|renewal| (Arc::clone(lease), renewal)));
            } else if closes && lease.is_open() {
                over.push(Arc::clone(lease));
            }
        }
        for (lease, renewal) in due {
            shared.send(lease, renewal, now);
        }
        if !over.is_empty() {
            shared.close(over);
        }
        if number.is_multiple_of(TICKS_PER_SWEEP) {
            let table = shared.table.pin();
            for (name, lease) in &table {
                if lease.close_if_idle(now) && table.remove(name).is_some() {
                    shared.weight.fetch_sub(name.weight(), Relaxed);
                }
            }
        }
        shared.metrics.held(shared.table.len(), held);
    }
}
