//! The shared store of the services.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use weir_core::domain::{Key, Micros};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server, eventually};

use super::Outcome;

pub enum Store {
    Single(Server),
    Cluster(Cluster),
}

impl Store {
    /// Starts one Redis server.
    pub fn single() -> Self {
        Self::Single(Server::start(Options::port()))
    }

    /// Starts three masters with a replica each, which report only their ports: clients reach all nodes at the host of
    /// their connection.
    pub fn cluster() -> Self {
        let settings = vec![("cluster-preferred-endpoint-type".to_owned(), "unknown-endpoint".to_owned())];
        Self::Cluster(Cluster::start(&ClusterOptions { replicas: 1, settings }))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Single(_) => "redis",
            Self::Cluster(_) => "cluster",
        }
    }

    fn servers(&self) -> &[Server] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => &cluster.nodes,
        }
    }

    pub fn ports(&self) -> Vec<u16> {
        self.servers().iter().map(Server::port).collect()
    }

    /// Returns the `store.url` of a service that reaches the store at this host.
    pub fn url(&self, host: &str) -> String {
        let hosts: Vec<_> = self.ports().iter().take(2).map(|port| format!("{host}:{port}")).collect();
        let scheme = if let Self::Single(_) = self { "redis" } else { "redis-cluster" };
        format!("{scheme}://{}", hosts.join(","))
    }

    /// Returns a directory that is removed with the store.
    pub fn dir(&self) -> &Path {
        self.servers()[0].dir()
    }

    /// Makes the replica of the master with a user's states take over (`CLUSTER FAILOVER`), and waits until it has.
    ///
    /// # Errors
    /// The master has no replica.
    pub fn fail_over(&self, user: &str) -> Outcome<()> {
        let Self::Cluster(cluster) = self else { return Err("one Redis has no replica".into()) };
        let hash = [b"weir:", Key::new("", &["user", user])?.prefix(2)].concat();
        let slot = cluster.slot(&hash);
        let master = cluster.nodes[cluster.owner(slot)].port().to_string();
        let follows = |node: &Server| node.info("master_port").is_ok_and(|port| port == master);
        let replica = cluster.nodes.iter().position(follows).ok_or("the master has no replica")?;
        cluster.nodes[replica].cli(&["CLUSTER", "FAILOVER"]);
        eventually("it takes over", || {
            let role = cluster.nodes[replica].info("role")?;
            if role == "master" { Ok(()) } else { Err(role) }
        });
        Ok(())
    }
}

/// Returns a period in days whose windows, counted from the epoch, do not end within the next hour.
pub fn days_without_an_edge(day: Micros) -> Micros {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as Micros);
    [31, 30, 29].into_iter().find(|days| days * day - now % (days * day) > day / 24).unwrap_or(31)
}
