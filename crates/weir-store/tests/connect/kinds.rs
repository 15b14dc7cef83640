//! Servers of another kind than the settings say, and servers that do not answer.

use std::{
    io::{Read, Write},
    net::TcpListener,
    time::{Duration, Instant},
};

use weir_settings::Time;
use weir_store::{
    failure::ErrorCode,
    redis::{connector::Purpose, settings::RedisSettings},
};

use crate::server::{Server, TIMEOUT, ask, connect, connector, eventually, free_port, patient, refused};

#[tokio::test]
async fn tcp_connects_by_host_name_and_by_ip_address() {
    let server = Server::tcp(&[]);
    for host in ["127.0.0.1", "localhost"] {
        connect(&format!("redis://{host}:{}", server.port), &patient()).await.expect("connected");
    }
}

#[tokio::test]
async fn a_replica_is_rejected() {
    let master = Server::tcp(&[]);
    let replica = Server::unix(&[&format!("replicaof 127.0.0.1 {}", master.port)]);
    let failure = refused(&replica.url(""), &patient()).await;
    assert_eq!(failure.error_code(), Some(ErrorCode::ReadOnly));
    assert!(failure.to_string().contains("is a replica, not a master"), "{failure}");
}

#[tokio::test]
async fn cluster_nodes_require_a_cluster_url_and_vice_versa() {
    let node = Server::node();
    let alone = Server::tcp(&[]);
    let failure = refused(&format!("redis://127.0.0.1:{}", node.port), &patient()).await;
    assert!(failure.to_string().contains("is part of a Cluster; use redis-cluster://"), "{failure}");
    let url = format!("redis-cluster://127.0.0.1:{}", node.port);
    let none = refused(&url, &patient()).await;
    assert_eq!(none.error_code(), Some(ErrorCode::ClusterDown), "{none}");
    node.run("CLUSTER ADDSLOTSRANGE 0 16383");
    eventually("it serves all slots", async || connect(&url, &patient()).await.is_ok()).await;
    let failure = refused(&format!("redis-cluster://127.0.0.1:{}", alone.port), &patient()).await;
    assert!(failure.to_string().contains("is not part of a Cluster; use redis://"), "{failure}");
}

#[tokio::test]
async fn a_replica_serves_the_cluster_topology() {
    let node = Server::node();
    let master = node.port.to_string();
    let replica = Server::node();
    replica.run(&format!("CLUSTER MEET 127.0.0.1 {master}"));
    let id = node.run("CLUSTER MYID");
    // The nodes must complete their handshake before they know each other.
    eventually("it is a replica", async || replica.try_run(&format!("CLUSTER REPLICATE {id}")).is_ok()).await;
    let url = format!("redis-cluster://127.0.0.1:{}", replica.port);
    assert_eq!(refused(&url, &patient()).await.error_code(), Some(ErrorCode::ReadOnly));
    let (connector, address) = connector(&url, &patient());
    let connection = connector.connect(&address, Purpose::Topology, connector.deadline()).await;
    ask(&connection.expect("a replica knows its Cluster"), "CLUSTER SLOTS").await.expect("an answer");
}

#[tokio::test]
async fn an_unreachable_server_fails_immediately() {
    let failure = refused(&format!("redis://127.0.0.1:{}", free_port()), &patient()).await;
    assert_eq!(failure.kind(), "connect");
    assert!(failure.to_string().contains("connecting to 127.0.0.1:"), "{failure}");
    assert!(failure.may_be_sent_again());
    let failure = refused("redis+unix:///nowhere/redis.sock", &patient()).await;
    assert!(failure.to_string().contains("connecting to unix:/nowhere/redis.sock: No such file"), "{failure}");
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let settings = RedisSettings { connect_timeout: Time(2_000_000), ..RedisSettings::default() };
    for (scheme, how) in [("redis", ""), ("rediss", " over TLS")] {
        let started = Instant::now();
        let failure = refused(&format!("{scheme}://127.0.0.1:{port}"), &settings).await;
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        let expected = format!("connecting to 127.0.0.1:{port}{how}: no answer in time");
        assert!(failure.to_string().contains(&expected), "{failure}");
    }
}

/// Starts a listener that answers every request with this text; an empty text closes the connection.
fn answering(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            while stream.read(&mut [0; 4_096]).is_ok_and(|length| length > 0 && !answer.is_empty()) {
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    port
}

#[tokio::test]
async fn unexpected_replies_are_reported_without_the_password() {
    for (answer, expected) in [
        ("-ERR unknown command `HELLO`, with args beginning with: `3` `AUTH` `default` `geheim`\r\n", "Redis 6.2 or"),
        ("-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'geheim'\r\n", "Redis 6.2 or"),
        ("-ERR unknown command 'SCRIPT', with args beginning with: 'geheim'\r\n", "unknown command 'SCRIPT'"),
        ("-ERR max number of clients reached\r\n", "max number of clients"),
        ("HTTP/1.1 400 Bad Request\r\n", "not the Redis protocol"),
        ("+OK\r\n", "the reply to HELLO cannot be read"),
        ("", "the connection was closed"),
    ] {
        let failure = refused(&format!("redis://:geheim@127.0.0.1:{}", answering(answer)), &patient()).await;
        assert_eq!(failure.kind(), "connect");
        assert!(failure.to_string().contains(expected), "{failure}");
        assert!(!failure.to_string().contains("geheim"), "{failure}");
    }
}

#[tokio::test]
async fn a_loading_server_is_reported_as_loading() {
    let server = Server::unix(&["loading-process-events-interval-bytes 1024"]);
    server.run("DEBUG POPULATE 10000");
    server.run("CONFIG SET key-load-delay 10000");
    // Each key takes 10 ms to load, so loading takes longer than this test.
    let admin = server.admin().await;
    let reload = tokio::spawn(async move { ask(&admin, "DEBUG RELOAD").await });
    let started = Instant::now();
    let failure = loop {
        if let Err(failure) = connect(&server.url(""), &patient()).await {
            break failure;
        }
        assert!(started.elapsed() < TIMEOUT && !reload.is_finished(), "never loading");
    };
    assert_eq!(failure.error_code(), Some(ErrorCode::Loading), "{failure}");
    reload.abort();
}
