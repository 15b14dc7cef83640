//! The servers of a store in any topology: a single server, Sentinel or Cluster.

use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::Value;
use futures_util::future::Either;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    cluster::Cluster,
    command::command,
    encode::Part,
    factory::NodeFactory,
    node::Node,
    pool::Target,
    reply::Answer,
    reset,
    retry::retried,
    sentinel::{Sentinels, watch::watch},
    slots::slot_of,
    store_time::StoreTime,
};
use weir_core::domain::Clock;

use crate::{
    Failure,
    metrics::ServerStatus,
    url::{Address, Topology},
};

/// Longest duration of a scan, and longest wait for another one.
const MAX_SCAN_TIME: Duration = Duration::from_secs(600);
/// Most scans that wait for another one.
const MAX_WAITING_SCANS: usize = 16;

pub(crate) struct Servers {
    kind: Kind,
    scans: Scans,
    time: Arc<StoreTime>,
    /// The task that polls the Sentinels, until it is dropped.
    _watch: Option<AbortOnDropHandle<()>>,
}

enum Kind {
    /// A single server, or the current master that Sentinel reports.
    One(Arc<Node>),
    /// The masters of a Cluster.
    Cluster(Cluster),
}

/// Permits for scans.
struct Scans {
    /// For the running scan: only one at a time.
    turn: Semaphore,
    /// For the running scan and those waiting.
    places: Semaphore,
}

impl Servers {
    /// Creates the nodes and starts their background tasks.
    pub(crate) fn start(topology: &Topology, factory: NodeFactory) -> Self {
        let (mut watching, time) = (None, Arc::clone(&factory.time));
        let kind = match topology {
            Topology::Single(address) => {
                Kind::One(Arc::new(factory.only(Target::Fixed(address.clone()), address.clone())))
            }
            Topology::Sentinel { sentinels, master } => {
                let address = sentinels.first().cloned().unwrap_or_else(|| Address::Unix(master.into()));
                let connector = Arc::clone(&factory.connector);
                let sentinels = Arc::new(Sentinels::new(sentinels.clone(), master.clone(), connector));
                let node = factory.only(Target::Sentinel(Arc::clone(&sentinels)), address);
                let pool = Arc::clone(node.pool());
                let pause = factory.command_timeout();
                let watch = factory.tasks.spawn(async move { watch(&sentinels, &pool, pause).await });
                watching = Some(AbortOnDropHandle::new(watch));
                Kind::One(Arc::new(node))
            }
            Topology::Cluster { seeds } => Kind::Cluster(Cluster::start(seeds.clone(), factory)),
        };
        let scans = Scans { turn: Semaphore::new(1), places: Semaphore::new(1 + MAX_WAITING_SCANS) };
        Self { kind, scans, time, _watch: watching }
    }

    /// Whether all anchors are on one server, so that a plan over several of them is decided in one step.
    pub(crate) fn decide_all_together(&self) -> bool {
        matches!(self.kind, Kind::One(_))
    }

    /// Returns the estimate of the servers' clock.
    pub(crate) fn time(&self) -> &StoreTime {
        &self.time
    }

    /// Returns the estimate of the servers' clock as a [`Clock`].
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.time) as Arc<dyn Clock>
    }

    /// Whether the circuit breakers of all servers are closed.
    pub(crate) fn is_up(&self) -> bool {
        match &self.kind {
            Kind::One(node) => node.is_up(),
            Kind::Cluster(cluster) => cluster.is_up(),
        }
    }

    /// Returns the status of all servers: the only one, or a Cluster's known masters, with its seeds while the slot map
    /// is incomplete.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        match &self.kind {
            Kind::One(node) => vec![node.status()],
            Kind::Cluster(cluster) => {
                let unknown = cluster.unknown_seeds().into_iter();
                cluster.masters().iter().map(|node| node.status()).chain(unknown).collect()
            }
        }
    }

    /// Sends one part, whose first key is in hash slot `slot`. The part is built again for each attempt.
    ///
    /// # Errors
    /// The last [`Failure`].
    pub(crate) fn ask(
        &self,
        slot: impl Fn() -> u16,
        deadline: Instant,
        part: impl Fn() -> Part,
    ) -> impl Future<Output = Answer> {
        match &self.kind {
            Kind::One(node) => Either::Left(retried(deadline, move || node.ask(part(), deadline, false))),
            Kind::Cluster(cluster) => {
                let slot = slot();
                // Boxed, so that the future for a single server stays small.
                Either::Right(Box::pin(async move {
                    let part = &part;
                    let ask = |node: Arc<Node>, asking| async move { node.ask(part(), deadline, asking).await };
                    cluster.route(slot, deadline, ask).await
                }))
            }
        }
    }

    /// Sends an outage charge for this key, following redirections; see [`Node::charge`]. It is not retried: its sender
    /// does that, later.
    ///
    /// # Errors
    /// [`Failure`] when it was not charged, or that is unknown.
    pub(crate) async fn charge(&self, key: &[u8], deadline: Instant, part: impl Fn() -> Part) -> Answer {
        match &self.kind {
            Kind::One(node) => node.charge(part(), deadline, false).await,
            Kind::Cluster(cluster) => {
                let part = &part;
                let charge = |node: Arc<Node>, asking| async move { node.charge(part(), deadline, asking).await };
                cluster.route(slot_of(key), Instant::now(), charge).await
            }
        }
    }

    /// Whether the circuit breaker of the key's server is closed.
    pub(crate) fn serves(&self, key: impl Fn() -> Vec<u8>) -> bool {
        match &self.kind {
            Kind::One(node) => node.is_up(),
            Kind::Cluster(cluster) => cluster.serves(slot_of(&key())),
        }
    }

    /// Runs the script outside the pipelines of checks, with keys of one hash slot. Returns the reply and the node that
    /// sent it. Must be called on the store's runtime.
    ///
    /// # Errors
    /// The last [`Failure`].
    pub(crate) async fn script(
        &self,
        keys: &[&[u8]],
        call: &[u8],
        deadline: Instant,
    ) -> Result<(Value, Arc<Node>), Failure> {
        let script = |node: Arc<Node>, asking| async move { Ok((node.script(keys, call, asking).await?, node)) };
        match &self.kind {
            Kind::One(node) => retried(deadline, || script(Arc::clone(node), false)).await,
            Kind::Cluster(cluster) => cluster.route(keys.first().map_or(0, |key| slot_of(key)), deadline, script).await,
        }
    }

    /// Deletes all keys with this prefix and returns how many there were. Only one such scan runs at a time. Must be
    /// called on the store's runtime.
    ///
    /// # Errors
    /// [`Failure`] when some may remain: [`Failure::QueueFull`] when too many scans wait, [`Failure::Late`]
    /// when it could not start within ten minutes.
    pub(crate) async fn remove(&self, prefix: &[u8]) -> Result<usize, Failure> {
        let _place = self.scans.places.try_acquire().map_err(|_| Failure::QueueFull)?;
        let turn = timeout(MAX_SCAN_TIME, self.scans.turn.acquire()).await.map_err(|_| Failure::Late)?;
        let _turn = turn.map_err(|_| Failure::Closed)?;
        let deadline = Instant::now() + MAX_SCAN_TIME;
        let late = |_| Failure::Lost(format!("not all keys were looked at within {MAX_SCAN_TIME:?}").into());
        let removed = timeout_at(deadline, self.scan(prefix, deadline)).await.map_err(late)?;
        removed.inspect_err(|_| self.refresh())
    }

    /// Triggers a refresh of a Cluster's slot map: a command for all servers failed, which no check may notice.
    pub(crate) fn refresh(&self) {
        if let Kind::Cluster(cluster) = &self.kind {
            cluster.refresh();
        }
    }

    async fn scan(&self, prefix: &[u8], deadline: Instant) -> Result<usize, Failure> {
        match &self.kind {
            Kind::One(node) => reset::delete_by_prefix(self, node, prefix).await,
            Kind::Cluster(cluster) => {
                let (mut deleted, mut scanned) = (0, Vec::new());
                // Looked up each time: a migrating hash slot may have brought a new master.
                let is_new =
                    |scanned: &[Arc<Node>], node: &Arc<Node>| !scanned.iter().any(|seen| Arc::ptr_eq(seen, node));
                while let Some(node) =
                    cluster.all_masters(deadline).await?.into_iter().find(|node| is_new(&scanned, node))
                {
                    deleted += reset::delete_by_prefix(self, &node, prefix).await?;
                    scanned.push(node);
                }
                Ok(deleted)
            }
        }
    }

    /// Runs a command for one key on the server that has it, until the deadline. Must be called on the store's runtime.
    ///
    /// # Errors
    /// The last [`Failure`], also for an error reply.
    pub(crate) async fn command(&self, key: &[u8], args: &[&[u8]], deadline: Instant) -> Result<Value, Failure> {
        Ok(self.command_of(key, args, deadline).await?.0)
    }

    /// Like [`Self::command`], but also returns the node that replied.
    ///
    /// # Errors
    /// As for [`Self::command`].
    pub(crate) async fn command_of(
        &self,
        key: &[u8],
        args: &[&[u8]],
        deadline: Instant,
    ) -> Result<(Value, Arc<Node>), Failure> {
        let send = |node: Arc<Node>, asking| async move { Ok((node.command(&command(args), asking).await?, node)) };
        let answer = async {
            match &self.kind {
                Kind::One(node) => send(Arc::clone(node), false).await,
                Kind::Cluster(cluster) => cluster.route(slot_of(key), deadline, send).await,
            }
        };
        // A new connection, or the reply, may take longer.
        timeout_at(deadline, answer).await.unwrap_or_else(|_| Err(Failure::Lost("no reply by the deadline".into())))
    }

    /// Returns all servers that have keys.
    ///
    /// # Errors
    /// The slot map is incomplete at the deadline, or its circuit breaker is open.
    pub(crate) async fn masters(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, Failure> {
        match &self.kind {
            Kind::One(node) => Ok(vec![Arc::clone(node)]),
            Kind::Cluster(cluster) => cluster.all_masters(deadline).await,
        }
    }
}
