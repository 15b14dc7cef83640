//! The near cache of refusals, with a real Redis.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use weir::proto::{CheckRequest, Override, r#override::Change};
use weir_envoy::envoy::service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{
    Server, TIMEOUT,
    envoy::{descriptor, should_rate_limit},
    eventually,
    overrides::{over, set},
    requests::{check, peek, reset},
    server::Setup,
};

const HITS: &str = "weir_near_cache_hits_total";
/// The metric of checks sent to Redis.
const ASKED: &str = "weir_store_batch_size_sum{store=\"redis\"}";

fn setup(redis: &Redis, policy: &str) -> Setup {
    Setup::new().shared(redis).policy(policy)
}

/// Starts a service with the near cache and its maximum age.
fn cached(redis: &Redis, policy: &str) -> Server {
    let setup = setup(redis, policy).env("WEIR_STORE__NEAR_CACHE__ENABLED", "true");
    setup.env("WEIR_STORE__NEAR_CACHE__MAX_AGE", "1s").start()
}

/// Returns the clock of Redis in whole seconds.
fn second(redis: &Redis) -> u64 {
    redis.cli(&["TIME"]).lines().next().expect("seconds").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_answered_from_the_cache_and_gets_exactly_its_limit() {
    const CLIENTS: usize = 8;
    const LIMIT: u64 = 10;
    const WINDOWS: u64 = 3;
    let redis = Redis::start(Options::socket());
    let server = cached(&redis, "schema: { '*': { limits: [{ fixed_window: { count: 10, period: 1s } }] } }");
    let first = second(&redis);
    let (checks, allowed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (mut client, checks, allowed) = (server.client().await, Arc::clone(&checks), Arc::clone(&allowed));
        clients.spawn(async move {
            let since = Instant::now();
            while allowed.load(Ordering::SeqCst) < LIMIT * WINDOWS || checks.load(Ordering::SeqCst) < 3_000 {
                let answer = client.check(check(&["flood"])).await.expect("an answer").into_inner();
                checks.fetch_add(1, Ordering::SeqCst);
                allowed.fetch_add(u64::from(answer.allowed), Ordering::SeqCst);
                if !answer.allowed {
                    let retry = answer.retry_after.expect("it can pass");
                    assert!(retry.seconds < 1 && retry.nanos > 0, "{retry:?}");
                }
                assert!(since.elapsed() < TIMEOUT, "not in time");
            }
        });
    }
    clients.join_all().await;
    let windows = second(&redis) - first + 1;
    let (checks, allowed) = (checks.load(Ordering::SeqCst), allowed.load(Ordering::SeqCst));
    let asked = eventually("every check is counted", || {
        let (hits, asked) = (server.metric(HITS), server.metric(ASKED));
        (hits + asked == checks as f64).then_some(asked)
    });
    println!("{checks} checks in {windows} windows: {allowed} allowed, the store asked for {asked}");
    assert!(allowed >= LIMIT * WINDOWS, "each new window is noticed");
    assert!(allowed <= LIMIT * windows, "{allowed} allowed in {windows} windows");
    assert!(asked * 2.0 < checks as f64, "the store was asked for {asked} of {checks}");
}

#[tokio::test]
async fn local_resets_and_refunds_invalidate_the_cache() {
    let redis = Redis::start(Options::socket());
    let server = cached(&redis, "schema: { user: { children: { '*': { limits: [0, 1, 86400] } } } }");
    let mut client = server.client().await;
    let key = ["user", "alex"];
    let mut allowed = async |cost: i64| {
        let request = CheckRequest { cost: Some(cost), ..check(&key) };
        client.check(request).await.expect("an answer").into_inner().allowed
    };
    assert!(allowed(1).await);
    let since = Instant::now();
    assert!(!allowed(1).await);
    assert!(!allowed(1).await);
    if since.elapsed() < Duration::from_millis(500) {
        assert_eq!(server.metric(HITS), 1.0);
    }
    assert!(allowed(-1).await);
    assert!(allowed(1).await, "given back");
    assert!(!allowed(1).await);
    server.client().await.reset(reset(&["user"], true)).await.expect("reset");
    assert!(allowed(1).await, "reset");
    assert!(!allowed(1).await);
    // The new policy has a higher limit.
    server.replace_policy("schema: { user: { children: { '*': { limits: [1, 1, 86400] } } } }");
    server.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 1.0);
    assert!(allowed(1).await, "allowed by the new policy");
}

/// A shadow limit is charged for the checks that it allows. With `charge: independent` only the store knows which ones.
#[tokio::test]
async fn shadows_are_not_charged_for_refusals_that_are_known() {
    let redis = Redis::start(Options::socket());
    let policy = "
charge: independent
schema:
  user:
    limits:
      - { name: hard, fixed_window: { count: 2, period: 31d, charge_denied: true } }
      - { name: trial, shadow: true, fixed_window: { count: 100, period: 31d } }
";
    let server = cached(&redis, policy);
    for number in 0..20 {
        let answer = server.check(check(&["user"])).await;
        assert_eq!(answer.allowed, number < 2);
    }
    let answer = server.check(peek(&["user"])).await;
    let trial = answer.levels.iter().find(|level| level.name == "trial").expect("it is met");
    assert_eq!(trial.remaining, 98, "{answer:?}");
}

#[tokio::test]
async fn descriptors_over_their_limit_are_known_one_by_one_and_counted_by_rule() {
    let redis = Redis::start(Options::socket());
    let policy = "
domain: d
descriptors:
  - { key: low, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: high, rate_limit: { unit: year, requests_per_unit: 100 } }
  - { key: valued, value_to_metric: true, rate_limit: { unit: year, requests_per_unit: 1 } }
";
    let server = cached(&redis, policy);
    let ask = async |keys: &[&str]| {
        let descriptors = keys.iter().map(|key| descriptor(&[key, "v"], 2)).collect();
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, ..RateLimitRequest::default() };
        should_rate_limit(server.channel().await, request).await.expect("an answer").statuses
    };
    let refusals = |limit: &str| {
        server.metric(&format!("weir_near_cache_refusals_total{{domain=\"d\",limit=\"{limit}#fixed_window0\"}}"))
    };
    ask(&["low", "valued"]).await;
    let (mut left, mut hits) = (100, 0.0);
    while hits < 3.0 {
        let statuses = ask(&["low", "high", "valued"]).await;
        left -= 2;
        let codes: Vec<_> = statuses.iter().map(|status| status.code).collect();
        assert_eq!(codes, [Code::OverLimit as i32, Code::Ok as i32, Code::OverLimit as i32]);
        assert_eq!(statuses[1].limit_remaining, left, "what is not known is charged");
        for status in [&statuses[0], &statuses[2]] {
            assert!(status.current_limit.is_some() && status.duration_until_reset.is_some(), "{status:?}");
        }
        hits = server.metric(HITS);
    }
    assert_eq!((refusals("low/*"), refusals("high/*"), refusals("valued/v")), (hits, 0.0, hits));
    let charged = server.metric("weir_charged_units_total{domain=\"d\",limit=\"low/*#fixed_window0\"}");
    let all = server.metric("weir_decisions_total{domain=\"d\",limit=\"low/*#fixed_window0\",outcome=\"limited\"}");
    assert_eq!(charged, 2.0 * (all - hits), "what is known charges nothing");
}

/// All values with one count have one path, but an override acts on one value.
#[tokio::test]
async fn an_override_of_one_value_of_a_shared_count_refuses_no_other_value() {
    let redis = Redis::start(Options::socket());
    let policy = "
domain: d
charge: all_or_nothing
descriptors: [{ key: path, value: '/s*', share_threshold: true, rate_limit: { unit: year, requests_per_unit: 10 } }]
";
    let server = cached(&redis, policy);
    // The pattern itself is a value too.
    for (value, factor) in [("/s-low", 10.0), ("/s*", 5.0), ("/s-high", 0.5)] {
        set(&server, Override { domain: "d".to_owned(), ..over(&["path", value], Change::Factor(factor)) }).await;
    }
    let allowed = async |is_by_envoy: bool, value: &str| {
        if !is_by_envoy {
            return server.check(CheckRequest { domain: "d".to_owned(), ..check(&["path", value]) }).await.allowed;
        }
        let descriptors = vec![descriptor(&["path", value], 1)];
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, ..RateLimitRequest::default() };
        should_rate_limit(server.channel().await, request).await.expect("an answer").overall_code == Code::Ok as i32
    };
    for _ in 0..2 {
        assert!(allowed(false, "/s*").await, "two of ten");
    }
    for (is_by_envoy, value) in [(false, "/s-low"), (false, "/s*"), (true, "/s-low"), (true, "/s*")] {
        for _ in 0..2 {
            assert!(!allowed(is_by_envoy, value).await, "{value}");
            assert!(allowed(is_by_envoy, "/s-any").await, "refused by the limit of {value}");
        }
    }
    for is_by_envoy in [false, true] {
        let hits = server.metric(HITS);
        for _ in 0..4 {
            assert!(!allowed(is_by_envoy, "/s-any").await, "ten of ten");
        }
        assert!(server.metric(HITS) > hits, "values without an override share their refusals");
        assert!(allowed(is_by_envoy, "/s-high").await, "refused by the limit of other values");
    }
}

#[tokio::test]
async fn the_near_cache_is_off_by_default() {
    let redis = Redis::start(Options::socket());
    let server = setup(&redis, "schema: { '*': { limits: [0, 1, 86400] } }").start();
    let mut client = server.client().await;
    for allowed in [true, false, false, false] {
        assert_eq!(client.check(check(&["a"])).await.expect("an answer").into_inner().allowed, allowed);
    }
    server.wait_for_metric(ASKED, 4.0);
    assert_eq!(server.metric(HITS), 0.0);
}
