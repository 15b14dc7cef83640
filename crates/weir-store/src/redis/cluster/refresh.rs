//! Topology refresh of a Cluster: when to request the slot map, from which node, and whether to accept it.

use std::{
    collections::BTreeSet,
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
use weir_telemetry::Causes;

use super::Shared;
use crate::{
    Failure,
    redis::{
        node::Node,
        slots::{self, SLOTS, SlotMap},
    },
    url::Address,
};

/// Least interval between two refreshes.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);
/// Least interval between two refreshes after `MOVED` redirections, for which the map is already updated.
const REFRESH_PAUSE_AFTER_MOVE: Duration = Duration::from_secs(1);
/// Refresh interval while a master is unhealthy or the map is incomplete.
const REFRESH_WHEN_DOWN: Duration = Duration::from_millis(200);

/// Triggers for refreshes, and the state between them.
#[derive(Default)]
pub(super) struct Refresh {
    requested: Notify,
    moved: Notify,
    /// The target of the last `MOVED`, which has the latest map.
    moved_to: Mutex<Option<Address>>,
    /// Number of refreshes so far, which rotates the node asked first.
    rotation: AtomicUsize,
    /// The last refresh was rejected, because it had fewer slots.
    rejected_once: AtomicBool,
}

impl Refresh {
    /// Triggers a refresh, because the map may be outdated.
    pub(super) fn request(&self) {
        self.requested.notify_one();
    }

    /// Triggers a refresh after a `MOVED` to this address, since other slots may have moved too.
    pub(crate) fn after_move(&self, to: Address) {
        *self.moved_to.lock() = Some(to);
        self.moved.notify_one();
    }
}

/// Refreshes the map when it may be outdated, and periodically while a master is unhealthy.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut logged = None;
    loop {
        let failure = shared.refresh_and_report().await.err();
        match &failure {
            // Logged only when it changes.
            Some(now) if logged.as_ref() != Some(now) => {
                warn!(error = %Causes(now), "the Cluster's slot map is incomplete or cannot be refreshed");
            }
            None if logged.is_some() => info!("the Cluster's slot map is complete again"),
            _ => {}
        }
        logged = failure;
        let refreshed = Instant::now();
        sleep(REFRESH_PAUSE).await;
        let moved = async {
            sleep_until(refreshed + REFRESH_PAUSE_AFTER_MOVE).await;
            shared.refresh.moved.notified().await;
        };
        tokio::select! {
            biased;
            () = shared.refresh.requested.notified() => {}
            () = moved => {}
            () = sleep(REFRESH_WHEN_DOWN), if !shared.is_up() => {}
        }
    }
}

impl Shared {
    /// Refreshes the map, and opens the topology's circuit breaker after consecutive failures, or when the refresh
    /// takes longer than a check's timeout; before the first map, than a command with a new connection may.
    async fn refresh_and_report(&self) -> Result<(), Failure> {
        let mut refresh = pin!(self.refresh());
        let is_first = self.map.load().covered() == 0;
        let connect_timeout = if is_first { self.factory.connect_timeout() } else { Duration::ZERO };
        let refreshed = match timeout(self.factory.command_timeout() + connect_timeout, &mut refresh).await {
            Ok(refreshed) => refreshed,
            Err(_) => {
                self.topology.trip(&Failure::Connect("no node sent the slot map in time".into()));
                refresh.await
            }
        };
        let outcome = refreshed.and_then(|()| match self.map.load().covered() {
            SLOTS => Ok(()),
            covered => Err(Failure::Server(format!("the Cluster serves {covered} of {SLOTS} slots").into())),
        });
        match &outcome {
            Ok(()) => self.topology.close(),
            Err(failure) => self.topology.failed(failure),
        }
        outcome
    }

    /// Requests the map from one node after the other until one answers.
    async fn refresh(&self) -> Result<(), Failure> {
        let mut last = Failure::Connect("no node of the Cluster is known".into());
        for address in self.candidates() {
            match self.ranges(&address).await {
                Ok(ranges) => {
                    self.apply(ranges);
                    return Ok(());
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Returns the order in which nodes are asked: the target of the last `MOVED`, the healthy masters in rotation, the
    /// other masters, then the seeds.
    fn candidates(&self) -> Vec<Address> {
        let map = self.map.load();
        let (mut up, down): (Vec<_>, Vec<_>) = map.masters().partition(|(_, node)| node.is_up());
        let rotation = self.refresh.rotation.fetch_add(1, Ordering::Relaxed);
        let first = rotation.checked_rem(up.len()).unwrap_or_default();
        up.rotate_left(first);
        let masters = up.into_iter().chain(down).map(|(address, _)| address.clone());
        let moved_to = self.refresh.moved_to.lock().take();
        let mut all: Vec<Address> = Vec::new();
        for address in moved_to.into_iter().chain(masters).chain(self.seeds.iter().cloned()) {
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

    /// Builds a new map, keeping the nodes of the old one. A map with fewer slots is accepted only if the next refresh,
    /// from another node, confirms it.
    fn apply(&self, ranges: Vec<slots::Range>) {
        let _change = self.change.lock();
        let (before, mut next) = (self.map.load(), SlotMap::default());
        for (first, last, address) in ranges {
            let make =
                || before.at(&address).map_or_else(|| Arc::new(self.factory.master(&address, first)), Arc::clone);
            next.give(first..=last, &address, make);
        }
        let fewer = next.covered() < before.covered();
        if fewer && !self.refresh.rejected_once.swap(true, Ordering::Relaxed) {
            self.refresh.request();
            return;
        }
        self.refresh.rejected_once.store(false, Ordering::Relaxed);
        // Sorted, because nodes may list the masters in different orders.
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
