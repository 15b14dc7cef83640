//! Clients that do not read their answers.

use futures_util::stream::poll_fn;
use tokio::sync::mpsc;
use weir::proto::CheckBatchRequest;
use weir_envoy::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage,
};

use crate::support::{
    eventually_async, in_time,
    raw::{Raw, framed, is_closed},
    requests::check,
    server::Setup,
};

const BATCH: &str = "/weir.v1.RateLimiter/CheckBatch";
const STREAM: &str = "/weir.v1.RateLimiter/CheckStream";
const QUOTAS: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
const CLOSED: &str = "weir_connections_closed_total{listener=\"grpc\",reason=\"unread\"}";
/// Batches of each greedy client: together their answers exceed the maximum of a port, but one client's do not.
const BATCHES: usize = 100;
/// Maximum memory growth, in bytes, of a test build: more than the unread answers that a port keeps.
const MOST_GROWTH: usize = 96 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_with_the_most_unread_answers_are_closed() {
    let name = "n".repeat(200);
    let policy = format!(
        "schema: {{ user: {{ children: {{ '*': {{ limits: [{{ gcra: {{ burst: 999999, count: 1000, period: 1s }}, name: {name} }}] }} }} }} }}"
    );
    let server = Setup::new().policy(&policy).start();
    let batch = CheckBatchRequest { checks: vec![check(&["user", "alex"]); 1_000] };
    // With this window the service can send nothing to them.
    let connect = || Raw::connect(&server.grpc, 0).expect("a connection");
    let mut modest = connect();
    modest.ask(BATCH, &batch).expect("a call");
    let before = server.resident();
    let mut greedy: Vec<_> = (0..4).map(|_| connect()).collect();
    let mut closed = 0;
    for _ in 0..BATCHES {
        greedy.retain_mut(|raw| {
            let asked = raw.ask(BATCH, &batch).and_then(|()| raw.discard());
            let is_open = !asked.is_err_and(|error| is_closed(&error));
            closed += usize::from(!is_open);
            is_open
        });
    }
    eventually_async("they are closed", async || (server.metric(CLOSED) >= 2.0).then_some(())).await;
    let grown = server.resident().saturating_sub(before);
    assert!(grown < MOST_GROWTH, "{grown} bytes more, {closed} are closed");
    modest.discard().expect("it is open");
    let answer = in_time("an answer", server.client().await.check_batch(batch)).await.expect("an answer").into_inner();
    assert!(answer.results.iter().all(|result| result.error.is_none()), "others are answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_unread_answers_of_streams_are_bounded() {
    /// The flow-control window that the client grants, without reading anything.
    const WINDOW: u32 = 1 << 30;
    let limit =
        |number: usize| format!("{{ gcra: {{ burst: 999999, count: 1000, period: 1s }}, name: {number:0200} }}");
    let limits = (0..16).map(limit).collect::<Vec<_>>().join(", ");
    let server = Setup::new().policy(&format!("schema: {{ user: {{ limits: [{limits}] }} }}")).start();
    // The answers are larger than the bytes that the service sends before it waits for the client.
    let checks = framed(&check(&["user"])).repeat(16);
    let before = server.resident();
    let mut greedy = Vec::new();
    eventually_async("one is closed", async || {
        let mut raw = Raw::connect(&server.grpc, WINDOW).expect("a connection");
        let asked = raw.more_window(WINDOW).and_then(|()| (0..256).try_for_each(|_| raw.ask_all(STREAM, &checks)));
        assert!(asked.as_ref().err().is_none_or(is_closed), "{asked:?}");
        greedy.push(raw);
        (server.metric(CLOSED) >= 1.0).then_some(())
    })
    .await;
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 2 * MOST_GROWTH, "{grown} bytes more by {} clients", greedy.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reports_whose_answers_are_not_read_are_counted_with_them() {
    let policy = "domain: api\nschema: { user: { children: { alex: { limits: [9, 10, 1] } } } }";
    let server = Setup::new().policy(policy).env("WEIR_RLQS__DOMAINS", "api=user").start();
    // Each report is answered immediately, as there is no limit on this bucket.
    let report = BucketQuotaUsage { bucket_id: Some(BucketId::default()), ..BucketQuotaUsage::default() };
    let reports = RateLimitQuotaUsageReports { domain: "api".to_owned(), bucket_quota_usages: vec![report; 4_000] };
    let before = server.resident();
    let mut greedy = Vec::new();
    for _ in 0..12 {
        // The client reads only the first answers.
        let mut raw = Raw::connect(&server.grpc, 1_000).expect("a connection");
        let asked = (0..250).try_for_each(|_| raw.ask(QUOTAS, &reports).and_then(|()| raw.discard()));
        assert!(asked.as_ref().err().is_none_or(is_closed), "{asked:?}");
        greedy.push(raw);
    }
    eventually_async("one is closed", async || (server.metric(CLOSED) >= 1.0).then_some(())).await;
    let grown = server.resident().saturating_sub(before);
    // Streams need as much again for their own buffers.
    assert!(grown < 2 * MOST_GROWTH, "{grown} bytes more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn buffers_of_idle_streams_are_bounded() {
    let server = Setup::new().policy("schema: { user: { limits: [9, 10, 1] } }").start();
    let key = "k".repeat(1_000_000);
    let mut client = server.client().await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        let (checks, mut sent) = mpsc::channel(65);
        // Earlier messages must not matter.
        for _ in 0..64 {
            checks.send(check(&["user"])).await.expect("there is room");
        }
        checks.send(check(&["user", &key])).await.expect("there is room");
        let messages = poll_fn(move |cx| sent.poll_recv(cx));
        // Once the connection is closed, the next stream opens another one.
        let Ok(answers) = client.check_stream(messages).await else { continue };
        let mut answers = answers.into_inner();
        for is_long in (0..65).map(|number| number == 64) {
            let Ok(answer) = in_time("an answer", answers.message()).await else { break };
            let has_error = answer.is_some_and(|answer| answer.error.is_some());
            assert_eq!(has_error, is_long, "too long a key is answered in its place");
        }
        streams.push((checks, answers));
    }
    eventually_async("the connection is closed", async || (server.metric(CLOSED) == 1.0).then_some(())).await;
}
