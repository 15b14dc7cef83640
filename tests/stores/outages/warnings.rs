//! Conditions short of an outage that the log warns about.

use std::time::Duration;

use weir_test_redis::{Endless, Options, Server, eventually};

use crate::wire::Wire;
use crate::{
    service::{patient, runtime},
    support::{Server as Service, requests::check, server::Setup},
};

/// Timeout of a check, and a latency of more than half of it.
const COMMAND_TIMEOUT: &str = "1s";
const LONG_WAY: Duration = Duration::from_millis(600);

const POLICY: &str =
    "schema: { user: { children: { '*': { limits: [{ gcra: { burst: 9, count: 1, period: 1s } }] } } } }";
const SLOW: &str = "checks may be decided without the store: a round trip takes more than half of \
                    store.redis.command_timeout; such warnings come once a minute at most";
const EVICTS: &str = "the server evicts keys when its memory is full, so limits would start afresh: set \
                      maxmemory-policy noeviction";

/// Sends one check. Returns whether the store answered.
fn is_shared(service: &Service) -> bool {
    let answer = runtime().block_on(async { service.client().await.check(check(&["user", "alex"])).await });
    !answer.expect("an answer").into_inner().degraded
}

#[test]
fn slow_round_trips_are_a_warning() {
    let redis = Server::start(Options::socket());
    let near = patient(&redis.url()).policy(POLICY).start();
    let far = Setup::new().env("WEIR_STORE__URL", &Wire::to(&redis, LONG_WAY).url()).policy(POLICY);
    let far = far.env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "30s");
    let far = far.env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", COMMAND_TIMEOUT).start();
    eventually("a warning", || {
        is_shared(&far);
        if far.log_lines(SLOW).is_empty() { Err("none".to_owned()) } else { Ok(()) }
    });
    for _ in 0..3 {
        is_shared(&far);
        assert!(is_shared(&near));
    }
    assert_eq!((far.log_lines(SLOW).len(), near.log_lines(SLOW).len()), (1, 0), "once a minute");
}

#[test]
fn an_evicting_server_is_a_warning() {
    for (policy, bound, warned) in [
        ("volatile-ttl", "100mb", 1),
        ("allkeys-lru", "100mb", 1),
        ("noeviction", "100mb", 0),
        ("volatile-ttl", "0", 0),
    ] {
        let redis = Server::start(Options::socket().set("maxmemory", bound).set("maxmemory-policy", policy));
        let service = patient(&redis.url()).policy(POLICY).start();
        assert!(is_shared(&service), "its connections have been tried");
        let count = || service.log_lines(EVICTS).len();
        eventually("the warning", || if count() >= warned { Ok(()) } else { Err(format!("{policy} {bound}")) });
        assert_eq!(count(), warned, "{policy} {bound}");
    }
}

#[test]
fn a_server_that_starts_to_evict_is_a_warning_at_the_next_connection() {
    let redis = Server::start(Options::socket().set("maxmemory", "100mb"));
    let service = patient(&redis.url()).policy(POLICY).start();
    assert!(is_shared(&service));
    let mut warned = 0;
    for (policy, warns) in
        [("allkeys-lru", true), ("allkeys-lru", false), ("volatile-ttl", true), ("noeviction", false)]
    {
        redis.cli(&["CONFIG", "SET", "maxmemory-policy", policy]);
        redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        warned += usize::from(warns);
        eventually("the policy is logged", || {
            is_shared(&service);
            let lines = service.log_lines(EVICTS);
            let is_last = lines.last().is_some_and(|line| policy == "noeviction" || line["policy"] == policy);
            if lines.len() == warned && is_last { Ok(()) } else { Err(format!("{policy}: {lines:?}")) }
        });
    }
    service.wait_for_log("the server does not evict keys");
    assert_eq!(service.log_lines(EVICTS).len(), 2);
}

#[test]
fn sentinels_that_refuse_are_a_warning_with_the_cause() {
    let sentinel =
        Server::start(Options::sentinel().set("sentinel monitor", "mymaster 127.0.0.1 1 1").set("user", "default off"));
    let address = format!("127.0.0.1:{}", sentinel.port());
    let service = patient(&format!("redis-sentinel://{address}/mymaster")).policy(POLICY).start();
    let line = service.wait_for_log("too few Sentinels answer: a master that is replaced would not be noticed");
    let error = line["error"].as_str().expect("an error");
    assert!(error.contains(&format!("the Sentinel {address}: NOAUTH")), "{line}");
}

/// Maximum size of a reply, plus the largest socket buffers of a system.
const TOO_MUCH: u64 = (16 + 64) << 20;

#[test]
fn endless_replies_are_cut_off() {
    let redis = Endless::start();
    let service = patient(&redis.url()).policy(POLICY).env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "30s").start();
    let sent = eventually("the connection is closed", || match redis.most_sent() {
        0 => Err("it goes on".to_owned()),
        bytes => Ok(bytes),
    });
    assert!(sent < TOO_MUCH, "{sent} bytes");
    eventually("it is logged", || {
        let log = service.log();
        let count = log.iter().any(|line| line.contains("the reply is larger than any valid one"));
        if count { Ok(()) } else { Err(format!("{log:#?}")) }
    });
}
