//! A Cluster that is unusable when the service starts: the circuit breaker opens, as with a single server.

use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

use super::scene::{Scene, service};

/// Starts a service while its Cluster is unusable. `servers` are the ports of the nodes in its URL.
fn start_without(name: &'static str, url: &str, servers: &[u16]) -> Scene {
    let scene = Scene::start(name, service(url));
    scene.fails();
    scene.answers_at_once();
    let metrics = scene.service[0].get("/metrics").1;
    for port in servers {
        let series = format!("weir_store_server_up{{server=\"127.0.0.1:{port}\"}} 0");
        assert!(metrics.lines().any(|line| line == series), "{series}: {metrics}");
    }
    scene
}

fn ports(cluster: &Cluster) -> Vec<u16> {
    cluster.nodes.iter().take(2).map(Server::port).collect()
}

#[test]
fn checks_recover_when_a_late_cluster_starts() {
    let mut cluster = Cluster::start(&ClusterOptions::default());
    let url = cluster.url();
    cluster.nodes.iter_mut().for_each(Server::kill);
    let scene = start_without("Cluster: connection refused", &url, &ports(&cluster));
    scene.local_counts();
    cluster.nodes.iter_mut().for_each(Server::restart);
    cluster.wait_until_ok(cluster.nodes.len());
    scene.recovers(true);
}

#[test]
fn checks_recover_when_paused_nodes_resume() {
    let cluster = Cluster::start(&ClusterOptions::default());
    cluster.nodes.iter().for_each(Server::pause);
    let scene = start_without("Cluster: SIGSTOP", &cluster.url(), &ports(&cluster));
    scene.local_counts();
    cluster.nodes.iter().for_each(Server::resume);
    cluster.wait_until_ok(cluster.nodes.len());
    scene.recovers(true);
}

#[test]
fn checks_recover_when_all_slots_are_assigned() {
    let node = Server::start(Options::node());
    let url = format!("redis-cluster://127.0.0.1:{}", node.port());
    let scene = start_without("Cluster: no slots", &url, &[node.port()]);
    node.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]);
    scene.service[0].wait_for_log("store unhealthy: circuit breaker open, checks are decided by on_store_failure");
    scene.answers_at_once();
    node.cli(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]);
    scene.recovers(true);
}
