//! Answers when `store.max_keys` is exhausted, by each rule.

use serde_json::json;
use weir::proto::{CheckResponse, SlidingLog, limit::Algorithm};
use weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::{
    logs::fields,
    support::{
        Server,
        envoy::{descriptor, should_rate_limit},
        requests::{check, limit, peek, seconds_long, short, with_limits},
        server::Setup,
    },
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";
const CAPACITY: u64 = 20;

/// Starts a service that is filled with users, each with 3 of 10 units spent.
async fn full(rule: &str) -> Server {
    let setup = Setup::new().policy(POLICY).env("WEIR_STORE__MAX_KEYS", &CAPACITY.to_string());
    let server = setup.env("WEIR_STORE__WHEN_FULL", rule).start();
    for user in 0..CAPACITY {
        for left in [9, 8, 7] {
            assert_eq!(short(&ask(&server, &format!("known {user}")).await), (true, 10, left));
        }
    }
    server
}

async fn ask(server: &Server, user: &str) -> CheckResponse {
    server.check(check(&["user", user])).await
}

async fn left_to_all_known(server: &Server) -> Vec<u64> {
    let mut left = Vec::new();
    for user in 0..CAPACITY {
        left.push(server.check(peek(&["user", &format!("known {user}")])).await.remaining);
    }
    left
}

fn assert_counts(server: &Server, rule: &str, full: f64, evicted: f64) {
    assert_eq!(server.metric(&format!("weir_store_full_total{{rule=\"{rule}\"}}")), full);
    assert_eq!(server.metric("weir_evictions_total{reason=\"evicted\"}"), evicted);
    assert_eq!(server.metric("weir_keys"), CAPACITY as f64);
}

#[tokio::test]
async fn deny_refuses_new_keys_for_a_second_and_keeps_known_ones() {
    let server = full("deny").await;
    let answer = ask(&server, "new").await;
    assert_eq!(short(&answer), (false, 10, 0));
    assert_eq!(answer.retry_after.map(|retry| retry.seconds), Some(1));
    let line = fields(server.wait_for_log("memory store full: checks of new keys are refused"));
    assert_eq!(line, json!({ "checks": 1, "when_full": "deny", "max_keys": CAPACITY }));
    assert_eq!(left_to_all_known(&server).await, [7; CAPACITY as usize]);
    assert_counts(&server, "deny", 1.0, 0.0);
    for (user, code) in [("known 0", 0), ("new", 1)] {
        assert_eq!(server.run(&["check", "user", user]).code, code, "{user}");
    }
    assert_counts(&server, "deny", 2.0, 0.0);
    assert_eq!(server.run(&["reset", "user", "known 0"]).code, 0);
    assert_eq!(server.run(&["check", "user", "new"]).code, 0);
}

#[tokio::test]
async fn deny_refuses_new_descriptors_for_a_second() {
    let policy = "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 9 } }]";
    let server = Setup::new().policy(policy).env("WEIR_STORE__MAX_KEYS", "1").start();
    let mut times = Vec::new();
    for user in ["known", "new"] {
        let descriptors = vec![descriptor(&["user", user], 1)];
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, ..Default::default() };
        let answer = should_rate_limit(server.channel().await, request).await.expect("an answer");
        times.push(answer.statuses[0].duration_until_reset.map(|time| time.seconds));
    }
    assert!(times[0] > Some(1) && times[1] == Some(1), "{times:?}");
}

#[tokio::test]
async fn allow_passes_new_keys_without_storing_them() {
    let server = full("allow").await;
    for _ in 0..3 {
        assert_eq!(short(&ask(&server, "new").await), (true, 10, 9));
    }
    assert_eq!(left_to_all_known(&server).await, [7; CAPACITY as usize]);
    assert_counts(&server, "allow", 3.0, 0.0);
}

#[tokio::test]
async fn evict_stores_new_keys_in_place_of_others() {
    let server = full("evict").await;
    for left in [9, 8, 7] {
        assert_eq!(short(&ask(&server, "new").await), (true, 10, left));
    }
    let mut left = left_to_all_known(&server).await;
    left.sort_unstable();
    assert_eq!(left[..], [&[7; CAPACITY as usize - 1][..], &[10]].concat());
    assert_counts(&server, "evict", 1.0, 1.0);
}

/// A mark takes 8 bytes, and a state takes another entry for each 256 bytes.
#[tokio::test]
async fn limits_of_requests_take_places_by_what_they_may_remember() {
    let server = Setup::new().policy(POLICY).env("WEIR_STORE__MAX_KEYS", "400").start();
    let brought = |user: &str, count| {
        let log = SlidingLog { count, period: Some(seconds_long(60)), ..Default::default() };
        with_limits(check(&["user", user]), vec![limit(Algorithm::SlidingLog(log))])
    };
    let mut taken = 0;
    for (user, count, passes, places) in [
        ("a", 10, true, 1),
        ("b", 100, true, 1 + 100 * 8 / 256),
        ("c", 10_000, true, 1 + 10_000 * 8 / 256),
        ("d", 10_000, true, 1 + 10_000 * 8 / 256),
        ("e", 10, false, 0),
    ] {
        let answer = server.check(brought(user, count)).await;
        assert_eq!(answer.allowed, passes, "{user}");
        taken += places;
        assert_eq!(server.metric("weir_keys"), f64::from(taken), "{user}");
    }
}
