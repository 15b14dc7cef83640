//! Creates the nodes of a store with their connections, pipeline workers and circuit breakers, according to the
//! settings.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use deadpool_redis::redis::Value;
use tokio::time::timeout_at;

use super::{
    batch::{CallSettings, Grouping},
    breaker::Breaker,
    command::{command, query},
    connector::{Connector, Purpose},
    io::Tasks,
    node::Node,
    pool::{Pool, Target},
    probe::ProbeKey,
    queue::Queue,
    settings::RedisSettings,
    store_time::StoreTime,
    worker::Context,
};
use crate::{
    Failure,
    metrics::StoreMetrics,
    platform::Platform,
    url::{Address, RedisUrl},
};
use weir_core::domain::Clock;
use weir_telemetry::LogLimit;

/// Least interval between two warnings of the same kind about a server.
const WARNING_PAUSE: Duration = Duration::from_secs(60);
/// Connections to a server in addition to its pipeline workers': for probes, resets and scans.
const EXTRA_CONNECTIONS: usize = 2;

pub(crate) struct NodeFactory {
    pub connector: Arc<Connector>,
    pub tasks: Tasks,
    /// Estimate of the nodes' clock.
    pub time: Arc<StoreTime>,
    platform: Arc<dyn Platform>,
    settings: RedisSettings,
    metrics: Arc<StoreMetrics>,
}

impl NodeFactory {
    /// Creates a factory for nodes on this machine, with their tasks on `tasks`.
    pub(crate) fn new(
        url: &RedisUrl,
        settings: &RedisSettings,
        clock: Option<Arc<dyn Clock>>,
        metrics: Arc<StoreMetrics>,
        (platform, tasks): (Arc<dyn Platform>, Tasks),
    ) -> Self {
        let connector = Arc::new(Connector::new(Arc::clone(&platform), url, settings));
        let time = Arc::new(StoreTime::new(&*platform, clock));
        Self { connector, settings: settings.clone(), metrics, tasks, time, platform }
    }

    /// Creates the only node: the single server, or the current master that Sentinel reports.
    pub(crate) fn only(&self, target: Target, address: Address) -> Node {
        self.node(target, address, None, Grouping::Any)
    }

    /// Creates the node of a Cluster's master, which serves this hash slot. Does not wait for a connection.
    pub(crate) fn master(&self, address: &Address, slot: u16) -> Node {
        self.node(Target::Fixed(address.clone()), address.clone(), Some(slot), Grouping::SameKey)
    }

    fn node(&self, target: Target, address: Address, slot: Option<u16>, grouping: Grouping) -> Node {
        let (settings, server) = (&self.settings, target.to_string());
        let probe_key = Arc::new(ProbeKey::new(&settings.key_prefix, slot));
        let command_timeout = self.command_timeout();
        let (connector, key) = (Arc::clone(&self.connector), Arc::clone(&probe_key));
        let context = Context {
            server,
            pool: Arc::new(Pool::new(connector, target, key, settings.pool_size + EXTRA_CONNECTIONS, command_timeout)),
            breaker: Breaker::default(),
            successes: AtomicU64::default(),
            probe_key,
            call_settings: CallSettings {
                grouping,
                max_batch: settings.max_batch,
                wait_replicas: settings.wait_replicas,
            },
            time: Arc::clone(&self.time),
            command_timeout,
            slow_round_trips: LogLimit::every(WARNING_PAUSE),
            replication_timeouts: LogLimit::every(WARNING_PAUSE),
            metrics: Arc::clone(&self.metrics),
        };
        let queues = (0..settings.pool_size).map(|_| Arc::new(Queue::new(settings.max_queue))).collect();
        Node::start(address, queues, self.platform.random(), context, &self.tasks)
    }

    /// Returns the timeout of a check in the store.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.settings.command_timeout.duration()
    }

    /// Returns the timeout of a connection attempt.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.settings.connect_timeout.duration()
    }

    /// Requests `CLUSTER SLOTS` from a node of a Cluster.
    ///
    /// # Errors
    /// The failure, within the connection timeout.
    pub(crate) async fn cluster_slots(&self, address: &Address) -> Result<Value, Failure> {
        let deadline = self.connector.deadline();
        let connection = self.connector.connect(address, Purpose::Topology, deadline).await?;
        let question = command(&[b"CLUSTER", b"SLOTS"]);
        match timeout_at(deadline, query(connection.clone(), &question, false)).await {
            Ok(reply) => reply.map_err(|error| self.connector.connection_failure(address, error)),
            Err(_) => Err(Failure::Connect(format!("CLUSTER SLOTS of {address}: no answer in time").into())),
        }
    }
}
