//! Tests of the servers' own behaviour, on which other tests rely.

#![allow(clippy::expect_used)]

use std::time::Duration;

use weir_test_redis::{Cluster, ClusterOptions, Options, Sentinels, Server, Silent, eventually};

#[test]
fn a_server_is_paused_killed_and_started_again() {
    let mut server = Server::start(Options::port().set("requirepass", "secret"));
    assert_eq!(server.cli(&["SET", "key", "value"]), "OK");
    server.cli(&["CONFIG", "SET", "requirepass", "other"]);
    assert_eq!(server.cli(&["GET", "key"]), "value");

    server.pause();
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| server.cli(&["GET", "key"]));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!answer.is_finished(), "it is paused");
        server.resume();
        answer.join().expect("an answer")
    });
    assert_eq!(answer, "value");

    let port = server.port();
    server.pause();
    server.kill();
    assert!(server.try_cli(&["PING"]).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.cli(&["GET", "key"]), "");
}

#[test]
fn servers_do_not_outlive_a_panic() {
    let (socket, dir) = std::thread::spawn(|| {
        let server = Server::start(Options::socket());
        let seen = (server.socket(), server.dir().to_owned());
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _server = server;
            std::panic::resume_unwind(Box::new("as a test that fails"));
        }));
        assert!(panic.is_err());
        seen
    })
    .join()
    .expect("seen");
    assert!(std::os::unix::net::UnixStream::connect(socket).is_err());
    assert!(!dir.exists());
}

#[test]
fn sentinels_promote_the_replica() {
    let mut all = Sentinels::start(500);
    let first = all.master();
    all.data[first].cli(&["SET", "key", "value"]);
    all.data[first].cli(&["WAIT", "1", "0"]);
    assert_eq!(all.switch(), first);
    assert_eq!(all.master(), 1 - first);
    assert!(all.data[first].try_cli(&["SET", "key", "other"]).unwrap_err().starts_with("READONLY"));
    assert_eq!(all.fail_over(), 1 - first);
    assert_eq!(all.data[first].cli(&["GET", "key"]), "value");
}

#[test]
fn a_cluster_moves_slots_and_fails_over() {
    let mut cluster = Cluster::start(&ClusterOptions { replicas: 1, ..ClusterOptions::default() });
    assert_eq!(cluster.masters().len(), 3);
    for key in ["key", "{key}:1", "a{}b", "a{b", "{a}{b}"] {
        assert_eq!(cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]), cluster.slot(key.as_bytes()).to_string());
    }
    let slot = cluster.slot(b"key");
    let owner = cluster.owner(slot);
    cluster.nodes[owner].cli(&["SET", "key", "value"]);
    let other = *cluster.masters().iter().find(|node| **node != owner).expect("another");

    let migration = cluster.begin_migration(slot, other);
    assert_eq!(cluster.nodes[owner].cli(&["GET", "key"]), "value");
    assert_eq!(migration.move_some("10"), 1);
    assert!(cluster.nodes[owner].try_cli(&["GET", "key"]).unwrap_err().starts_with("ASK"));
    migration.finish();
    assert!(cluster.nodes[owner].try_cli(&["GET", "key"]).unwrap_err().starts_with("MOVED"));
    assert_eq!(cluster.nodes[other].cli(&["GET", "key"]), "value");
    cluster.migrate_slot(slot, owner);
    cluster.nodes[owner].cli(&["WAIT", "1", "0"]);

    let new = cluster.fail_over(owner);
    assert_eq!(cluster.owner(slot), new);
    eventually("the value survives", || match cluster.nodes[new].try_cli(&["GET", "key"])?.as_str() {
        "value" => Ok(()),
        other => Err(other.to_owned()),
    });
}

#[test]
fn a_silent_server_accepts() {
    let silent = Silent::start();
    assert!(std::net::TcpStream::connect(("127.0.0.1", silent.port())).is_ok());
}
