//! A single server that fails and recovers with its data.

use std::time::{Duration, Instant};

use super::{
    hold,
    scene::{Scene, service},
};
use weir_test_redis::{Options, Server};

const SHORT: Duration = Duration::ZERO;

#[test]
fn checks_recover_after_a_kill_and_restart() {
    let mut redis = Server::start(Options::socket());
    let scene = Scene::start_well("SIGKILL", service(&redis.url()));
    redis.kill();
    scene.fails();
    scene.local_counts();
    hold(SHORT);
    redis.restart();
    scene.recovers(false);
}

#[test]
fn checks_recover_after_a_pause() {
    let redis = Server::start(Options::socket());
    let scene = Scene::start_well("SIGSTOP", service(&redis.url()));
    redis.pause();
    scene.fails();
    hold(Duration::from_secs(2));
    redis.resume();
    scene.recovers(true);
}

#[test]
fn checks_recover_after_a_blocked_server() {
    let redis = Server::start(Options::socket());
    let scene = Scene::start_well("DEBUG SLEEP", service(&redis.url()));
    std::thread::scope(|scope| {
        let sleeping = scope.spawn(|| redis.cli(&["DEBUG", "SLEEP", "2"]));
        scene.fails();
        sleeping.join().expect("it wakes up");
    });
    scene.recovers(true);
}

#[test]
fn checks_recover_after_repeated_client_kills() {
    let redis = Server::start(Options::socket());
    let scene = Scene::start_well("CLIENT KILL", service(&redis.url()));
    let since = Instant::now();
    let mut killed = 0;
    while since.elapsed() < Duration::from_secs(1) {
        killed += redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]).parse::<usize>().expect("a number");
    }
    assert!(killed > 0);
    println!("{killed} connections killed");
    scene.recovers(true);
}

#[test]
fn checks_recover_after_out_of_memory() {
    let redis = Server::start(Options::socket());
    let scene = Scene::start_well("maxmemory", service(&redis.url()));
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    scene.fails();
    hold(SHORT);
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    scene.recovers(true);
}

#[test]
fn checks_recover_after_a_temporary_replica_role() {
    let redis = Server::start(Options::socket());
    let scene = Scene::start_well("READONLY", service(&redis.url()));
    // No server listens on this port, so the data is not replaced.
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    scene.fails();
    hold(SHORT);
    redis.cli(&["REPLICAOF", "NO", "ONE"]);
    scene.recovers(true);
}
