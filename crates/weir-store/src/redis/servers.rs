//! The servers of a store, however many there are and however they are found.

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

/// The longest that a scan may take, and the longest that it may wait for another.
const MAX_SCAN_TIME: Duration = Duration::from_secs(600);
/// Scans that may wait for another.
const MAX_WAITING_SCANS: usize = 16;

/// The servers.
pub(crate) struct Servers {
    kind: Kind,
    scans: Scans,
    time: Arc<StoreTime>,
    /// Asks Sentinels for the master, until it is dropped.
    _watch: Option<AbortOnDropHandle<()>>,
}

enum Kind {
    /// One, or the master of the moment.
    One(Arc<Node>),
    /// The masters of a Cluster.
    Cluster(Cluster),
}

/// Permits to scan.
struct Scans {
    /// One at a time.
    turn: Semaphore,
    /// That one, and those that wait.
    room: Semaphore,
}

impl Servers {
    /// Starts what asks the servers.
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
        let scans = Scans { turn: Semaphore::new(1), room: Semaphore::new(1 + MAX_WAITING_SCANS) };
        Self { kind, scans, time, _watch: watching }
    }

    /// Whether all anchors are on one server, so that a plan over several is one step.
    pub(crate) fn decide_all_together(&self) -> bool {
        matches!(self.kind, Kind::One(_))
    }

    /// What time they have, about.
    pub(crate) fn time(&self) -> &StoreTime {
        &self.time
    }

    /// The same as a clock.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.time) as Arc<dyn Clock>
    }

    /// Whether all are asked.
    pub(crate) fn is_up(&self) -> bool {
        match &self.kind {
            Kind::One(node) => node.is_up(),
            Kind::Cluster(cluster) => cluster.is_up(),
        }
    }

    /// How every server is: the only one, or a Cluster's known masters, and its seeds while slots have no known master.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        match &self.kind {
            Kind::One(node) => vec![node.status()],
            Kind::Cluster(cluster) => {
                let unknown = cluster.unknown_seeds().into_iter();
                cluster.masters().iter().map(|node| node.status()).chain(unknown).collect()
            }
        }
    }

    /// Asks for one part, whose first key is in `slot`. It is made anew each time it is sent.
    ///
    /// # Errors
    /// Why the servers did not answer.
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
                // Boxed, so that a single server's checks have no room for it.
                Either::Right(Box::pin(async move {
                    let part = &part;
                    let ask = |node: Arc<Node>, asking| async move { node.ask(part(), deadline, asking).await };
                    cluster.carry(slot, deadline, ask).await
                }))
            }
        }
    }

    /// Charges a part afterwards, whose key is this one; see [`Node::charge`].
    ///
    /// # Errors
    /// Why it is not charged, or not known to be.
    pub(crate) async fn charge(&self, key: &[u8], deadline: Instant, part: impl Fn() -> Part) -> Answer {
        match &self.kind {
            Kind::One(node) => retried(deadline, || node.charge(part(), deadline, false)).await,
            Kind::Cluster(cluster) => {
                let part = &part;
                let charge = |node: Arc<Node>, asking| async move { node.charge(part(), deadline, asking).await };
                cluster.carry(slot_of(key), deadline, charge).await
            }
        }
    }

    /// Whether the server of this key is asked.
    pub(crate) fn serves(&self, key: impl Fn() -> Vec<u8>) -> bool {
        match &self.kind {
            Kind::One(node) => node.is_up(),
            Kind::Cluster(cluster) => cluster.serves(slot_of(&key())),
        }
    }

    /// Runs the script outside the pipelines of checks, with one key: the reply, and whose it is. On the store's thread.
    ///
    /// # Errors
    /// Why the servers did not reply.
    pub(crate) async fn script(
        &self,
        key: &[u8],
        call: &[u8],
        deadline: Instant,
    ) -> Result<(Value, Arc<Node>), Failure> {
        let script = |node: Arc<Node>, asking| async move { Ok((node.script(key, call, asking).await?, node)) };
        match &self.kind {
            Kind::One(node) => retried(deadline, || script(Arc::clone(node), false)).await,
            Kind::Cluster(cluster) => cluster.carry(slot_of(key), deadline, script).await,
        }
    }

    /// Removes every key that begins so: how many there were. One such scan at a time. On the store's thread.
    ///
    /// # Errors
    /// Why it is not certain that all are gone. [`Failure::QueueFull`] when too many scans wait, [`Failure::Late`] when it
    /// has not begun within ten minutes.
    pub(crate) async fn remove(&self, beginning: &[u8]) -> Result<usize, Failure> {
        let _room = self.scans.room.try_acquire().map_err(|_| Failure::QueueFull)?;
        let turn = timeout(MAX_SCAN_TIME, self.scans.turn.acquire()).await.map_err(|_| Failure::Late)?;
        let _turn = turn.map_err(|_| Failure::Closed)?;
        let deadline = Instant::now() + MAX_SCAN_TIME;
        let late = |_| Failure::Lost(format!("not all keys were looked at within {MAX_SCAN_TIME:?}").into());
        timeout_at(deadline, self.scan(beginning, deadline)).await.map_err(late)?
    }

    async fn scan(&self, beginning: &[u8], deadline: Instant) -> Result<usize, Failure> {
        match &self.kind {
            Kind::One(node) => reset::scanned(self, node, beginning).await,
            Kind::Cluster(cluster) => {
                let (mut gone, mut scanned) = (0, Vec::new());
                // Looked up each time: a slot on its way may have brought one that was not known before.
                let is_new =
                    |scanned: &[Arc<Node>], node: &Arc<Node>| !scanned.iter().any(|seen| Arc::ptr_eq(seen, node));
                while let Some(node) =
                    cluster.all_masters(deadline).await?.into_iter().find(|node| is_new(&scanned, node))
                {
                    gone += reset::scanned(self, &node, beginning).await?;
                    scanned.push(node);
                }
                Ok(gone)
            }
        }
    }

    /// Runs a command about one key, wherever it is. On the store's thread.
    ///
    /// # Errors
    /// Why the server did not reply, or its error.
    pub(crate) async fn command(&self, key: &[u8], words: &[&[u8]], deadline: Instant) -> Result<Value, Failure> {
        match &self.kind {
            Kind::One(node) => node.command(&command(words), false).await,
            Kind::Cluster(cluster) => {
                let send = |node: Arc<Node>, asking| async move { node.command(&command(words), asking).await };
                cluster.carry(slot_of(key), deadline, send).await
            }
        }
    }

    /// Every server that has keys.
    ///
    /// # Errors
    /// It is not known by the deadline.
    pub(crate) async fn masters(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, Failure> {
        match &self.kind {
            Kind::One(node) => Ok(vec![Arc::clone(node)]),
            Kind::Cluster(cluster) => cluster.all_masters(deadline).await,
        }
    }
}
