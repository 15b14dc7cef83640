//! Topology refresh: when to ask for the slot map of a Cluster, whom, and what to believe.

use std::{
    collections::BTreeSet,
    error::Error,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{info, warn};

use super::Shared;
use crate::{
    Failure,
    redis::{
        node::Node,
        slots::{self, SLOTS, SlotMap},
    },
    url::Address,
};

/// The least time between two refreshes.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);
/// The least time between two refreshes for no more than a slot that has moved: the map knows of that slot already.
const REFRESH_PAUSE_AFTER_MOVE: Duration = Duration::from_secs(1);
/// How often to refresh while something is wrong with a master.
const REFRESH_WHEN_DOWN: Duration = Duration::from_millis(200);

/// Requests for refreshes, and the state between them.
#[derive(Default)]
pub(super) struct Refresh {
    doubted: Notify,
    moved: Notify,
    /// The node that a slot has moved to last: it knows the latest map.
    named: Mutex<Option<Address>>,
    /// Refreshes so far, so that each asks another node first.
    turn: AtomicUsize,
    /// The last refresh was not believed.
    disbelieved: AtomicBool,
}

impl Refresh {
    /// The map may be wrong.
    pub(super) fn soon(&self) {
        self.doubted.notify_one();
    }

    /// A slot has moved to this address; others may have moved too.
    pub(crate) fn after_move(&self, to: Address) {
        *self.named.lock() = Some(to);
        self.moved.notify_one();
    }
}

/// Refreshes the map whenever it may be out of date, and while a master is not well.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut trouble = None;
    loop {
        let failure = shared.refresh_and_judge().await.err();
        match &failure {
            // The log tells of changes only.
            Some(now) if trouble.as_ref() != Some(now) => {
                warn!(error = now as &dyn Error, "the Cluster's slot map is incomplete or cannot be refreshed");
            }
            None if trouble.is_some() => info!("the Cluster's slot map is complete again"),
            _ => {}
        }
        trouble = failure;
        let refreshed = Instant::now();
        sleep(REFRESH_PAUSE).await;
        let moved = async {
            sleep_until(refreshed + REFRESH_PAUSE_AFTER_MOVE).await;
            shared.refresh.moved.notified().await;
        };
        tokio::select! {
            biased;
            () = shared.refresh.doubted.notified() => {}
            () = moved => {}
            () = sleep(REFRESH_WHEN_DOWN), if !shared.is_up() => {}
        }
    }
}

impl Shared {
    /// Refreshes the map, and opens the topology's breaker by the rule of every breaker: after failures in a row, or when
    /// that takes longer than a check may.
    async fn refresh_and_judge(&self) -> Result<(), Failure> {
        let mut refresh = pin!(self.refresh());
        let refreshed = match timeout(self.factory.command_timeout(), &mut refresh).await {
            Ok(refreshed) => refreshed,
            Err(_) => {
                self.topology.trip(&Failure::Connect("no node tells the slot map within the time of a check".into()));
                refresh.await
            }
        };
        let judged = refreshed.and_then(|()| match self.map.load().covered() {
            SLOTS => Ok(()),
            covered => Err(Failure::Server(format!("the Cluster serves {covered} of {SLOTS} slots").into())),
        });
        match &judged {
            Ok(()) => self.topology.close(),
            Err(failure) => self.topology.failed(failure),
        }
        judged
    }

    /// Asks one node after the other for the map until one tells it.
    async fn refresh(&self) -> Result<(), Failure> {
        let mut last = Failure::Connect("no node of the Cluster is known".into());
        for address in self.whom_to_ask() {
            match self.ranges(&address).await {
                Ok(ranges) => {
                    self.take(ranges);
                    return Ok(());
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// The node named by the last move, then the masters, those that answer before the others, each time another one first,
    /// then the seeds.
    fn whom_to_ask(&self) -> Vec<Address> {
        let map = self.map.load();
        let (mut up, down): (Vec<_>, Vec<_>) = map.masters().partition(|(_, node)| node.is_up());
        let turn = self.refresh.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn.checked_rem(up.len()).unwrap_or_default();
        up.rotate_left(first);
        let masters = up.into_iter().chain(down).map(|(address, _)| address.clone());
        let named = self.refresh.named.lock().take();
        let mut all: Vec<Address> = Vec::new();
        for address in named.into_iter().chain(masters).chain(self.seeds.iter().cloned()) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        all
    }

    async fn ranges(&self, address: &Address) -> Result<Vec<slots::Range>, Failure> {
        let reply = self.factory.cluster_slots(address).await?;
        match slots::ranges(&reply, address) {
            Some(ranges) if !ranges.is_empty() => Ok(ranges),
            Some(_) => Err(Failure::Server("the Cluster serves no slot".into())),
            None => Err(Failure::Server("the reply to CLUSTER SLOTS cannot be read".into())),
        }
    }

    /// Makes the map anew; the nodes that it had stay those that they are. A map that knows of fewer slots is believed when
    /// the next refresh, by another node, tells no more either.
    fn take(&self, ranges: Vec<slots::Range>) {
        let _change = self.change.lock();
        let (before, mut next) = (self.map.load(), SlotMap::default());
        for (first, last, address) in ranges {
            let make =
                || before.at(&address).map_or_else(|| Arc::new(self.factory.master(&address, first)), Arc::clone);
            next.give(first..=last, &address, make);
        }
        let fewer = next.covered() < before.covered();
        if fewer && !self.refresh.disbelieved.swap(true, Ordering::Relaxed) {
            self.refresh.soon();
            return;
        }
        self.refresh.disbelieved.store(false, Ordering::Relaxed);
        // Sorted, since nodes need not tell them in the same order.
        let names = |map: &SlotMap<Node>| {
            map.masters()
                .map(|(address, _)| address.to_string())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        };
        let masters = names(&next);
        if names(&before) != masters {
            info!(masters = masters.join(", "), "the Cluster's masters");
        }
        self.set(next);
    }
}
