//! Behaviour that differs with a store that replicas share.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt;
use weir::proto::{CheckBatchRequest, CheckRequest, CheckResponse};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{Server, eventually_async, requests::check, server::Setup};

const CHECKS: usize = 1_000;
/// Fewer units than are requested.
const LIMIT: u64 = 700;
/// Minimum number of script calls for a thousand checks: 64 checks share one.
const FEW_CALLS: u64 = 16;

fn policy() -> String {
    let limit = format!("limits: [[{}, 1, 86400]]", LIMIT - 1);
    format!("schema: {{ user: {{ children: {{ '*': {{ {limit}, children: {{ trade: {{ {limit} }} }} }} }} }} }}")
}

fn script_calls(redis: &Redis) -> u64 {
    let stats = redis.info("cmdstat_evalsha").expect("an answer");
    let calls = stats.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// Returns the number of checks that wait for a round trip.
fn waiting(server: &Server) -> usize {
    let text = server.get("/metrics").1;
    let line = text.lines().find(|line| line.starts_with("weir_store_waiting_checks{"));
    line.and_then(|line| line.split(' ').next_back()?.parse().ok()).unwrap_or(0)
}

fn checks() -> Vec<CheckRequest> {
    vec![check(&["user", "alex", "trade"]); CHECKS]
}

/// Asserts that exactly the first checks are admitted.
fn assert_in_order(answers: &[CheckResponse]) {
    assert_eq!(answers.len(), CHECKS);
    for (index, answer) in answers.iter().enumerate() {
        let left = LIMIT.checked_sub(index as u64 + 1);
        assert_eq!(
            (answer.allowed, answer.remaining),
            (left.is_some(), left.unwrap_or(0)),
            "check {index}: {answer:?}"
        );
    }
}

/// Pauses the store once the service has connected, which may take time on a busy machine; otherwise no check would be
/// sent. Returns the answer to a check before that.
async fn pause(redis: &Redis, server: &Server) -> Response<CheckResponse> {
    let first = server.client().await.check(check(&["user", "other"])).await.expect("an answer");
    redis.pause();
    first
}

/// Pauses the store, so that checks queue up even on a busy machine: sends checks until one waits behind another.
async fn hold_up(redis: &Redis, server: &Server) -> JoinSet<Result<Response<CheckResponse>, Status>> {
    let mut others = JoinSet::new();
    let first = pause(redis, server).await;
    others.spawn(async { Ok(first) });
    eventually_async("one is on the way", async || {
        let mut client = server.client().await;
        others.spawn(async move { client.check(check(&["user", "other"])).await });
        tokio::task::yield_now().await;
        (waiting(server) > 0).then_some(())
    })
    .await;
    others
}

#[tokio::test]
async fn a_batch_shares_round_trips_and_is_decided_in_order() {
    let redis = Redis::start(Options::socket());
    let server = Setup::new().shared(&redis).policy(&policy()).env("WEIR_STORE__REDIS__POOL_SIZE", "1").start();
    let others = hold_up(&redis, &server).await;
    let mut client = server.client().await;
    let batch = CheckBatchRequest { checks: checks() };
    let answers =
        tokio::spawn(async move { client.check_batch(batch).await.map(|answers| answers.into_inner().results) });
    eventually_async("all wait", async || (waiting(&server) >= CHECKS).then_some(())).await;
    redis.resume();
    assert_in_order(&answers.await.expect("no panic").expect("answers"));
    let calls = script_calls(&redis);
    println!("{CHECKS} checks of a batch in {calls} calls");
    assert!((FEW_CALLS..=10 * FEW_CALLS).contains(&calls), "{calls} calls");
    let all = CHECKS + others.join_all().await.len();
    server.wait_for_metric("weir_store_batch_size_sum{store=\"redis\"}", all as f64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stream_shares_round_trips_and_is_answered_in_order() {
    let redis = Redis::start(Options::socket());
    let server = Setup::new().shared(&redis).policy(&policy()).env("WEIR_STORE__REDIS__POOL_SIZE", "1").start();
    let _others = hold_up(&redis, &server).await;
    let before = waiting(&server);
    let mut client = server.client().await;
    let answers = tokio::spawn(async move {
        let mut answers = client.check_stream(futures_util::stream::iter(checks())).await?.into_inner();
        let mut all = Vec::new();
        while let Some(answer) = answers.message().await? {
            all.push(answer);
        }
        Ok::<_, Status>(all)
    });
    eventually_async("many wait", async || (waiting(&server) > before + 32).then_some(())).await;
    redis.resume();
    assert_in_order(&answers.await.expect("no panic").expect("answers"));
    let calls = script_calls(&redis);
    println!("{CHECKS} checks of a stream in {calls} calls");
    assert!(calls < CHECKS as u64, "{calls} calls");
}

#[tokio::test]
async fn a_full_store_queue_gives_a_retry_delay() {
    let redis = Redis::start(Options::socket());
    let setup = Setup::new().shared(&redis).policy(&policy()).env("WEIR_STORE__REDIS__POOL_SIZE", "1");
    let server = setup.env("WEIR_STORE__REDIS__MAX_QUEUE", "1").start();
    pause(&redis, &server).await;
    let mut calls = JoinSet::new();
    for _ in 0..10 {
        let mut client = server.client().await;
        calls.spawn(async move { client.check(check(&["user", "alex"])).await });
    }
    let status = calls.join_next().await.expect("ten").expect("no panic").expect_err("more than one waits");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
    assert_eq!(retry, Some(Duration::from_secs(1)));
    redis.resume();
    let others: Vec<_> = calls.join_all().await;
    assert!(others.iter().any(Result::is_ok), "one was under way");
    let refused = others.iter().filter(|answer| answer.is_err()).count() + 1;
    assert_eq!(server.metric("weir_store_errors_total{store=\"redis\",kind=\"queue_full\"}"), refused as f64);
    let degraded = others.iter().filter_map(|answer| answer.as_ref().ok()).any(|answer| answer.get_ref().degraded);
    assert!(!degraded);
}

#[test]
fn a_reset_above_the_anchor_reports_a_scan() {
    let redis = Redis::start(Options::socket());
    let server = Setup::new().shared(&redis).policy(&policy()).start();
    for user in ["alex", "berta"] {
        assert_eq!(server.run(&["check", "user", user, "trade"]).code, 0);
    }
    let keys = || redis.cli(&["KEYS", "*"]).lines().filter(|key| *key != "weir:replicas").count();
    assert_eq!(keys(), 2);
    let key = server.run(&["reset", "user", "alex"]);
    assert_eq!((key.code, key.out.as_str()), (0, "reset user / alex; it had state\n"));
    let anchor = server.run(&["reset", "user", "alex", "--subtree", "--json"]);
    assert_eq!((anchor.code, anchor.out.as_str()), (0, "{\"existed\":false,\"scanned\":false,\"removed\":true}\n"));
    let anchor = server.run(&["reset", "user", "alex", "--subtree"]);
    assert_eq!(anchor.out, "nothing to reset: neither user / alex nor a key below it had state\n");
    let above = server.run(&["reset", "user", "--subtree"]);
    let expected = "reset user and every key below it; it had no state of its own; keys written meanwhile may remain\n";
    assert_eq!((above.code, above.out.as_str()), (0, expected));
    assert_eq!(keys(), 0);
    let above = server.run(&["reset", "user", "--subtree", "--json"]);
    assert_eq!(above.out, "{\"existed\":false,\"scanned\":true,\"removed\":false}\n");
    assert_eq!(server.metric("weir_store_duration_seconds_count{store=\"redis\",op=\"reset\"}"), 5.0);
}
