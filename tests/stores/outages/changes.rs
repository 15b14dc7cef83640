//! Changes by operators and Sentinels while a service is running.

use std::fs;

use super::{
    callers::{CALLERS, RULES},
    scene::{Scene, service},
};
use weir_test_redis::{Options, Sentinels, Server, Silent};

#[test]
fn checks_recover_after_a_password_change() {
    let redis = Server::start(Options::socket().set("requirepass", "old-secret"));
    let setup = service(&redis.url());
    let file = setup.path("password");
    fs::write(&file, "old-secret\n").expect("written");
    let path = file.to_str().expect("a path").to_owned();
    let mut scene = Scene::start_well("password", setup.env("WEIR_STORE__REDIS__PASSWORD_FILE", &path));
    redis.cli(&["CONFIG", "SET", "requirepass", "new-secret"]);
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    scene.fails();
    fs::write(&file, "new-secret\n").expect("written");
    scene.mended();
    scene.wait_for_recovery();
    let log = scene.service[0].log();
    assert!(!log.iter().any(|line| line.contains("-secret")), "{log:#?}");
    scene.finish(true);
}

/// The ACL permissions that docs/redis.md lists for checks.
const RIGHTS: [&str; 10] =
    ["+script|load", "+evalsha", "+time", "+hmget", "+hset", "+hdel", "+pttl", "+pexpire", "+hrandfield", "+ping"];
/// Maximum number of checks that are charged without an answer when a permission is lost: one round trip of each
/// pipeline worker.
const MOST_LOST: f64 = 2.0 * (RULES.len() * CALLERS) as f64;

#[test]
fn checks_recover_after_a_lost_acl_permission() {
    let redis = Server::start(Options::socket());
    redis.cli(&[&["ACL", "SETUSER", "app", "on", ">pw", "~weir:*", "-@all"], &RIGHTS[..]].concat());
    let url = redis.url().replace("redis+unix://", "redis+unix://app:pw@");
    let scene = Scene::start_well("ACL", service(&url));
    // The script calls PTTL after the write of a charge.
    redis.cli(&["ACL", "SETUSER", "app", "-pttl"]);
    scene.fails();
    scene.answers_at_once();
    let lost = scene.service[0].metric("weir_store_errors_total{store=\"redis\",kind=\"lost\"}");
    assert!(lost <= MOST_LOST, "{lost} charges without an answer");
    redis.cli(&["ACL", "SETUSER", "app", "+pttl"]);
    scene.recovers(true);
}

#[test]
fn checks_recover_after_a_sentinel_failover() {
    let mut all = Sentinels::start(500);
    let scene = Scene::start_well("Sentinel failover", service(&all.url()));
    all.fail_over();
    scene.recovers(false);
}

#[test]
fn checks_recover_after_a_sentinel_switch() {
    let all = Sentinels::start(500);
    let scene = Scene::start_well("Sentinel switch", service(&all.url()));
    all.switch();
    scene.recovers(false);
}

#[test]
fn checks_recover_when_a_late_server_starts() {
    let mut redis = Server::start(Options::port());
    redis.kill();
    let scene = Scene::start("connection refused", service(&redis.url()));
    scene.fails();
    scene.local_counts();
    redis.restart();
    scene.recovers(true);
}

#[test]
fn a_silent_server_opens_the_circuit_breaker() {
    let silent = Silent::start();
    let scene = Scene::start("silence", service(&silent.url()));
    scene.fails();
    scene.local_counts();
    scene.finish_down();
}
