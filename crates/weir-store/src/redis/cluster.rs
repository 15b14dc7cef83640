//! The masters of a Cluster: routing by hash slot, and redirections.

mod refresh;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{task::JoinHandle, time::Instant};
use tracing::debug;

use self::refresh::Refresh;
use super::{
    breaker::Breaker,
    factory::NodeFactory,
    node::Node,
    retry::Retry,
    slots::{self, SLOTS, SlotMap},
};
use crate::{
    Failure,
    failure::ErrorCode,
    metrics::{Outage, ServerStatus},
    url::Address,
};

/// Most redirections of one request without a pause.
const MAX_REDIRECTS: u32 = 8;
/// Cause of failures while no master is known.
const UNKNOWN: &str = "the Cluster's slot map is not known yet";

pub(super) struct Cluster {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    factory: NodeFactory,
    seeds: Vec<Address>,
    map: ArcSwap<SlotMap<Node>>,
    /// Serializes changes of the map.
    change: Mutex<()>,
    refresh: Refresh,
    /// Open while refreshes fail or the map is incomplete: checks of a hash slot without a known master then fail
    /// immediately.
    topology: Breaker,
}

impl Cluster {
    /// Starts a Cluster that is discovered through `seeds`. A background task keeps the slot map current.
    pub(super) fn start(seeds: Vec<Address>, factory: NodeFactory) -> Self {
        let (map, change, refresh, topology) = Default::default();
        let tasks = factory.tasks.clone();
        let shared = Arc::new(Shared { factory, seeds, map, change, refresh, topology });
        let task = tasks.spawn(refresh::run(Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Returns all known masters.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        self.shared.map.load().masters().map(|(_, node)| Arc::clone(node)).collect()
    }

    /// Returns the status of seeds that are not known masters while the slot map is incomplete; they get no checks.
    pub(super) fn unknown_seeds(&self) -> Vec<ServerStatus> {
        let map = self.shared.map.load();
        if map.covered() == SLOTS {
            return Vec::new();
        }
        // Before the circuit breaker opens, the map has been incomplete for a short time only.
        let outage = self.shared.topology.outage();
        let outage = Some(outage.unwrap_or_else(|| Outage { cause: UNKNOWN.into(), since: Instant::now() }));
        let unknown = self.shared.seeds.iter().filter(|seed| map.at(seed).is_none());
        let status = |seed: &Address| ServerStatus {
            server: seed.to_string(),
            outage: outage.clone(),
            ..ServerStatus::default()
        };
        unknown.map(status).collect()
    }

    /// Returns all masters, once the slot map is complete.
    ///
    /// # Errors
    /// [`Failure::BreakerOpen`] while refreshes fail, [`Failure::Connect`] when the map is incomplete at the deadline.
    pub(crate) async fn all_masters(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, Failure> {
        let mut retry = Retry::until(deadline);
        while !self.shared.is_known() {
            retry.pause(self.shared.unknown()).await?;
        }
        Ok(self.masters())
    }

    /// Triggers a refresh of the slot map.
    pub(super) fn refresh(&self) {
        self.shared.refresh.request();
    }

    /// Whether the slot map is complete and the circuit breakers of all masters are closed.
    pub(super) fn is_up(&self) -> bool {
        self.shared.is_up()
    }

    /// Whether the master of this hash slot is known and its circuit breaker is closed.
    pub(crate) fn serves(&self, slot: u16) -> bool {
        self.shared.owner(slot).is_some_and(|node| node.is_up())
    }

    /// Sends a request to the master of a hash slot, following redirections until a node answers. `send` gets the node,
    /// and whether the slot is still migrating to it (`ASK`).
    ///
    /// # Errors
    /// The last failure.
    pub(super) async fn route<T, F>(
        &self,
        slot: u16,
        deadline: Instant,
        send: impl Fn(Arc<Node>, bool) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (mut retry, mut ahead, mut redirects) = (Retry::until(deadline), None, 0);
        loop {
            let asking = ahead.is_some();
            let Some(node) = ahead.take().or_else(|| self.shared.owner(slot)) else {
                retry.pause(self.shared.unknown()).await?;
                continue;
            };
            let failure = match send(Arc::clone(&node), asking).await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            match self.shared.redirected(slot, &failure, node.address()) {
                Some(elsewhere) if redirects < MAX_REDIRECTS => {
                    redirects += 1;
                    ahead = elsewhere;
                }
                // Until the new owner of a slot knows that it is, both servers may name the other one.
                _ => {
                    redirects = 0;
                    retry.pause(self.shared.refresh_after(failure)).await?;
                }
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().owner(slot).map(Arc::clone)
    }

    /// Returns the failure of a request whose hash slot has no known master. While the circuit breaker is open, it
    /// triggers no refresh.
    fn unknown(&self) -> Failure {
        self.topology.open_failure().unwrap_or_else(|| self.refresh_after(Failure::Connect(UNKNOWN.into())))
    }

    fn is_known(&self) -> bool {
        self.map.load().covered() == SLOTS
    }

    fn is_up(&self) -> bool {
        self.is_known() && self.map.load().masters().all(|(_, node)| node.is_up())
    }

    /// Returns the target of a redirection: `Some(None)` if the updated map has it, `None` if the failure is not a
    /// redirection.
    fn redirected(&self, slot: u16, failure: &Failure, asked: &Address) -> Option<Option<Arc<Node>>> {
        let Failure::Rejected { code, text } = failure else { return None };
        let moved = *code == ErrorCode::Moved;
        if !moved && *code != ErrorCode::Ask {
            return None;
        }
        let address = slots::redirect(text, asked)?;
        debug!(slot, to = %address, moved, "redirected");
        if moved {
            self.moved(&address, slot);
            self.refresh.after_move(address);
            return Some(None);
        }
        self.importer(&address, slot).map(Some)
    }

    /// Triggers a refresh, if an outdated map may have caused the failure: not for overload, nor for failures caused by
    /// a state or the call's arguments.
    fn refresh_after(&self, failure: Failure) -> Failure {
        use Failure::{Corrupt, Late, QueueFull, Rejected, Shed};
        if !matches!(failure, QueueFull | Shed | Late | Corrupt(_) | Rejected { code: ErrorCode::Clock, .. }) {
            self.refresh.request();
        }
        failure
    }

    /// Records that the node at this address serves the hash slot.
    fn moved(&self, address: &Address, slot: u16) {
        let serves = || self.map.load().owner(slot).is_some_and(|node| node.address() == address);
        // Most requests in flight to the old node report the same move.
        if serves() {
            return;
        }
        let _change = self.change.lock();
        if !serves() {
            let mut next = SlotMap::clone(&self.map.load());
            next.give([slot].into_iter(), address, || Arc::new(self.factory.master(address, slot)));
            self.set(next);
        }
    }

    /// Replaces the map. A node whose probe key is in a hash slot that it lost gets another one.
    fn set(&self, map: SlotMap<Node>) {
        for (address, node) in map.masters() {
            let owner = node.probe_key().slot().and_then(|slot| map.owner(slot));
            if !owner.is_some_and(|owner| Arc::ptr_eq(owner, node))
                && let Some(slot) = map.last_of(address)
            {
                node.probe_key().put_in(slot);
            }
        }
        self.map.store(Arc::new(map));
    }

    /// Returns the node to which a hash slot is migrating; `None` if the map is full.
    fn importer(&self, address: &Address, slot: u16) -> Option<Arc<Node>> {
        let known = || self.map.load().at(address).map(Arc::clone);
        if let Some(node) = known() {
            return Some(node);
        }
        let _change = self.change.lock();
        if let Some(node) = known() {
            return Some(node);
        }
        let mut next = SlotMap::clone(&self.map.load());
        next.give(std::iter::empty(), address, || Arc::new(self.factory.master(address, slot)));
        let node = next.at(address).map(Arc::clone);
        self.set(next);
        node
    }
}
