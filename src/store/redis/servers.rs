//! The servers of a store, however many there are and however they are found.

use std::sync::Arc;

use tokio::{runtime::Handle, time::Instant};

use super::{
    breaker::Breaker,
    cluster::{Cluster, Connect},
    connection::{Connection, Reply},
    dial::{Dialer, Purpose},
    encode::Part,
    flight::{CallTerms, Grouping},
    lane::Course,
    manager::{Manager, Pool, Target},
    node::{Node, NodeTerms},
    reply::Decided,
    reset,
    retry::Retry,
    script,
    sentinel::Sentinels,
    settings::RedisSettings,
    slots::slot_of,
};
use crate::{
    domain::Clock,
    store::{
        Failure,
        url::{Address, RedisUrl, Topology},
    },
    telemetry::StoreMeter,
};

/// Connections to a server besides those of its lanes: for probes, resets and scans.
const MORE_CONNECTIONS: usize = 2;

/// The servers.
pub enum Servers {
    /// One, or the master of the moment.
    One(Box<Node>),
    /// The masters of a Cluster.
    Cluster(Cluster<Maker>),
}

impl Servers {
    /// Starts what asks the servers.
    pub fn start(topology: &Topology, maker: Maker) -> Self {
        match topology {
            Topology::Single(address) => {
                Self::One(Box::new(maker.one(Target::Fixed(address.clone()), address.clone())))
            }
            Topology::Sentinel { sentinels, master } => {
                let address = sentinels.first().cloned().unwrap_or_else(|| Address::Unix(master.into()));
                let target = Target::Sentinel(Sentinels::new(sentinels.clone(), master.clone()));
                Self::One(Box::new(maker.one(target, address)))
            }
            Topology::Cluster { seeds } => {
                let runtime = maker.runtime.clone();
                Self::Cluster(Cluster::start(seeds.clone(), maker, &runtime))
            }
        }
    }

    /// Whether all anchors are on one server, so that a plan over several is one step.
    pub fn decide_all_together(&self) -> bool {
        matches!(self, Self::One(_))
    }

    /// Whether all are asked.
    pub fn is_up(&self) -> bool {
        match self {
            Self::One(node) => node.is_up(),
            Self::Cluster(cluster) => cluster.is_up(),
        }
    }

    /// Calls `each` with every server that is known.
    pub fn for_each(&self, mut each: impl FnMut(&Node)) {
        match self {
            Self::One(node) => each(node),
            Self::Cluster(cluster) => cluster.masters().iter().for_each(|node| each(node)),
        }
    }

    /// Asks for one part, whose first key is in `slot`. It is made anew each time it is sent.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(
        &self,
        slot: impl Fn() -> u16,
        deadline: Instant,
        part: impl Fn() -> Part,
    ) -> Result<Decided, Failure> {
        match self {
            Self::One(node) => {
                let mut retry = Retry::until(deadline);
                loop {
                    match node.ask(part(), deadline, false).await {
                        Ok(decided) => return Ok(decided),
                        Err(failure) => retry.pause(failure).await?,
                    }
                }
            }
            Self::Cluster(cluster) => cluster.ask(slot(), deadline, part).await,
        }
    }

    /// Runs the script beside the lanes, with one key. On the store's thread.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn script(&self, key: &[u8], call: &[u8], deadline: Instant) -> Result<Reply, Failure> {
        match self {
            Self::One(node) => {
                let mut retry = Retry::until(deadline);
                loop {
                    match node.script(key, call, false).await {
                        Ok(reply) => return Ok(reply),
                        Err(failure) => retry.pause(failure).await?,
                    }
                }
            }
            Self::Cluster(cluster) => cluster.script(slot_of(key), key, call, deadline).await,
        }
    }

    /// Removes every key that begins so: how many there were. On the store's thread.
    ///
    /// # Errors
    /// Why it is not certain that all are gone.
    pub async fn remove(&self, beginning: &[u8]) -> Result<usize, Failure> {
        match self {
            Self::One(node) => reset::scanned(node, beginning).await,
            Self::Cluster(cluster) => {
                let mut gone = 0;
                for node in cluster.masters() {
                    gone += reset::scanned(&node, beginning).await?;
                }
                Ok(gone)
            }
        }
    }
}

/// Makes nodes.
pub struct Maker {
    dialer: Arc<Dialer>,
    settings: RedisSettings,
    clock: Option<Arc<dyn Clock>>,
    least_ttl_millis: i64,
    meter: Arc<StoreMeter>,
    runtime: Handle,
}

impl Maker {
    /// Of nodes whose tasks run on `runtime`.
    pub fn new(
        url: &RedisUrl,
        settings: &RedisSettings,
        clock: Option<Arc<dyn Clock>>,
        least_ttl_millis: i64,
        meter: Arc<StoreMeter>,
        runtime: Handle,
    ) -> Self {
        let dialer = Arc::new(Dialer::new(url, settings, script::text().into()));
        Self { dialer, settings: settings.clone(), clock, least_ttl_millis, meter, runtime }
    }

    fn one(&self, target: Target, address: Address) -> Node {
        let probe_key = [self.settings.key_prefix.as_bytes(), b"probe"].concat();
        self.make(target, address, probe_key, Grouping::Any)
    }

    fn make(&self, target: Target, address: Address, probe_key: Vec<u8>, grouping: Grouping) -> Node {
        let settings = &self.settings;
        let manager = Manager::new(target, Arc::clone(&self.dialer)).probing(probe_key.clone());
        let pool = Pool::new(manager, settings.pool_size + MORE_CONNECTIONS, settings.connect_timeout.duration());
        let course = Course {
            pool,
            breaker: Breaker::default(),
            terms: CallTerms {
                grouping,
                max_batch: settings.max_batch,
                now: None,
                least_ttl_millis: self.least_ttl_millis,
            },
            clock: self.clock.clone(),
            command_timeout: settings.command_timeout.duration(),
            meter: Arc::clone(&self.meter),
        };
        let terms = NodeTerms {
            address,
            lanes: settings.pool_size,
            max_queue: settings.max_queue,
            command_timeout: settings.command_timeout.duration(),
            probe_key,
        };
        Node::start(terms, course, &self.runtime)
    }
}

impl Connect for Maker {
    fn node(&self, address: &Address, slot: u16) -> Node {
        let prefix = &self.settings.key_prefix;
        // One of the slots has such a key before long: a million are sixty for each.
        let keys = (0..1_000_000).map(|number| format!("{prefix}probe:{number}").into_bytes());
        let probe_key = keys.into_iter().find(|key| slot_of(key) == slot).unwrap_or_default();
        self.make(Target::Fixed(address.clone()), address.clone(), probe_key, Grouping::SameKey)
    }

    async fn connection(&self, address: &Address) -> Result<Connection, Failure> {
        self.dialer.dial(address, Purpose::Topology).await
    }
}
