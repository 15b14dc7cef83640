//! Half-open calls without a message: they do not displace real calls, and are closed after a time.

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use hyper::{Request, header::HeaderMap};
use serde_json::json;
use tonic::{Code, Status};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_client::HealthClient};
use tonic_types::StatusExt;
use weir::proto::{CheckBatchRequest, CheckResponse};
use weir_test_redis::{Options, Server as Redis};

use crate::{
    support::{
        Server, eventually, eventually_async,
        http::Client,
        in_time,
        raw::{Raw, framed},
        requests::{check, sent_checks},
        server::Setup,
    },
    tokens::{by, caller, token},
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[999999, 1000, 1]] } } } }";
const CHECK: &str = "/weir.v1.RateLimiter/Check";
const BATCH: &str = "/weir.v1.RateLimiter/CheckBatch";
const STREAM: &str = "/weir.v1.RateLimiter/CheckStream";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const OPEN: &str = "weir_requests_rejected_total{listener=\"grpc\",reason=\"open\"}";
const CLOSED: &str = "weir_connections_closed_total{listener=\"grpc\",reason=\"unread\"}";
const LATE: &str = "weir_requests_rejected_total{listener=\"grpc\",reason=\"message\"}";
/// Maximum number of calls that a connection may open.
const CALLS: usize = 256;
/// Number of checks that may wait for the store, far fewer than the open calls.
const PLACES: &str = "8";
/// Maximum memory growth, in bytes, of a test build.
const MOST_GROWTH: usize = 128 << 20;

/// Opens connections with [`CALLS`] calls each, all without a message.
fn half_open(server: &Server, connections: usize, path: &str) -> Vec<Raw> {
    let open = |_| {
        let mut raw = Raw::connect(&server.grpc, 65_535).expect("a connection");
        for _ in 0..CALLS {
            raw.call(path).expect("a call");
        }
        raw
    };
    (0..connections).map(open).collect()
}

/// Starts a call without its message. Returns its response headers, and a guard of its connection.
async fn begin_call(address: &str, path: &str) -> (HeaderMap, impl Sized) {
    let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::post(format!("http://weir{path}")).header("content-type", "application/grpc");
    let (response, body) = client.send_request(request.body(()).expect("a request"), false).expect("sent");
    let (head, _) = in_time("the end of the call", response).await.expect("a head").into_parts();
    (head.headers, (body, client))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unauthenticated_half_open_calls_do_not_block_clients() {
    let (redis, known) = (Redis::start(Options::socket()), token());
    let callers = format!("callers:\n{}", caller("shop", "check, metrics", &known, ""));
    let setup = Setup::new().policy(POLICY).shared(&redis).credentials(&callers);
    let server = setup.env("WEIR_GRPC__MAX_CONCURRENT_REQUESTS", PLACES).start();
    for path in [HEALTH, WATCH] {
        let before = server.metric_by(&known.token, OPEN);
        let resident = server.resident();
        let held = half_open(&server, 12, path);
        let all_but_few = before + (12 * (CALLS - 16)) as f64;
        eventually_async("most are refused", async || {
            (server.metric_by(&known.token, OPEN) >= all_but_few).then_some(())
        })
        .await;
        let mut client = server.client().await;
        for _ in 0..100 {
            in_time("an answer", client.check(by(Some(&known.token), check(&["user", "alex"]))))
                .await
                .expect("a place");
        }
        let grown = server.resident().saturating_sub(resident);
        assert!(grown < MOST_GROWTH, "{path}: memory has grown by {grown} bytes");
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_oldest_half_open_calls_are_evicted_without_authentication() {
    /// Maximum number of calls that wait for their messages.
    const MOST: usize = 2_048;
    let redis = Redis::start(Options::socket());
    let setup = Setup::new().policy(POLICY).shared(&redis);
    let server = setup.env("WEIR_GRPC__MAX_CONCURRENT_REQUESTS", PLACES).start();
    for path in [CHECK, HEALTH, STREAM] {
        let (before, resident) = (server.metric(OPEN), server.resident());
        let held = half_open(&server, 32, path);
        let beyond = before + (32 * CALLS - MOST) as f64;
        eventually("the oldest are ended", || (server.metric(OPEN) >= beyond).then_some(()));
        let mut client = server.client().await;
        for _ in 0..100 {
            in_time("an answer", client.check(check(&["user", "alex"]))).await.expect("a place");
        }
        let grown = server.resident().saturating_sub(resident);
        assert!(grown < MOST_GROWTH, "{path}: memory has grown by {grown} bytes");
        drop(held);
        server.wait_for_metric("weir_connections{listener=\"grpc\"}", 1.0);
    }
}

#[test]
fn half_open_calls_of_others_do_not_end_a_call_whose_message_is_on_its_way() {
    let server = Server::with_policy(POLICY);
    let mut slow = Raw::connect(&server.grpc, 65_535).expect("a connection");
    slow.call(STREAM).expect("a call");
    let message = framed(&check(&["user", "alex"]));
    let (first, rest) = message.split_at(message.len() / 2);
    slow.part(first).expect("sent");
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 1.0);
    let _held = half_open(&server, 32, CHECK);
    eventually("others are ended", || (server.metric(OPEN) >= CALLS as f64).then_some(()));
    slow.part(rest).expect("sent");
    assert!(slow.answer::<CheckResponse>().expect("an answer").allowed);
}

#[tokio::test]
async fn half_open_calls_of_unauthenticated_connections_do_not_end_a_larger_call() {
    /// Number of connections with as many calls as one may have: together more than all waiting calls of the port.
    const CONNECTIONS: usize = 140;
    let known = token();
    let callers = format!("callers:\n{}", caller("shop", "check, metrics", &known, ""));
    let setup = Setup::new().policy(POLICY).credentials(&callers);
    let server = setup.env("WEIR_GRPC__MESSAGE_TIMEOUT", "60s").start();
    // More than the 16 calls of a connection, so that it is the largest of all if it counts among them.
    let checks = (0..900).map(|index| check(&["user", &format!("{index:0250}"), &format!("{index:0250}")])).collect();
    let message = Bytes::from(framed(&CheckBatchRequest { checks }));
    let stream = tokio::net::TcpStream::connect(&server.grpc).await.expect("a connection");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::post(format!("http://weir{BATCH}")).header("content-type", "application/grpc");
    let request = request.header("authorization", format!("Bearer {}", known.token)).body(()).expect("a request");
    let (response, mut body) = client.send_request(request, false).expect("sent");
    body.send_data(message.slice(..message.len() - 1), false).expect("sent");
    // Its window has space for the last byte once the service has read most of the others.
    body.reserve_capacity(message.len());
    while body.capacity() == 0 {
        in_time("the window", poll_fn(|cx| body.poll_capacity(cx))).await.expect("open").expect("bytes");
    }
    let held = half_open_unauthenticated(&server, CONNECTIONS);
    eventually_async("some are ended", async || (server.metric_by(&known.token, OPEN) >= 100.0).then_some(())).await;
    body.send_data(message.slice(message.len() - 1..), true).expect("sent");
    let (head, mut answer) = in_time("an answer", response).await.expect("a head").into_parts();
    let rejected = Status::from_header_map(&head.headers).filter(|status| status.code() != Code::Ok);
    assert!(rejected.is_none(), "{rejected:?}");
    assert!(in_time("an answer", answer.data()).await.is_some());
    drop(held);
}

/// Opens connections with 16 calls each, all without a message.
fn half_open_unauthenticated(server: &Server, connections: usize) -> Vec<Raw> {
    let open = |_| {
        let mut raw = Raw::connect(&server.grpc, 65_535).expect("a connection");
        (0..16).try_for_each(|_| raw.call(HEALTH)).expect("calls");
        raw
    };
    (0..connections).map(open).collect()
}

#[test]
fn the_headers_of_half_open_calls_count() {
    /// Number of calls without headers that may wait, of 8 KiB each.
    const MOST: usize = 2_048;
    let server = Server::with_policy(POLICY);
    let names: Vec<_> = (b'a'..=b's').flat_map(|first| (b'a'..=b'w').map(move |second| [first, second])).collect();
    let headers: Vec<_> = names.iter().map(|name| (str::from_utf8(name).expect("ASCII"), "")).collect();
    let open = |_| {
        let mut raw = Raw::connect(&server.grpc, 65_535).expect("a connection");
        (0..MOST / 8).try_for_each(|_| raw.call_with(CHECK, &headers)).expect("calls");
        raw
    };
    let _held: Vec<_> = (0..4).map(open).collect();
    // Half as many as without headers; each takes 50 KB more.
    eventually("most are ended", || (server.metric(OPEN) >= (MOST / 4) as f64).then_some(()));
}

#[test]
fn streams_that_cannot_be_ended_are_closed_with_their_connection() {
    let redis = Redis::start(Options::socket());
    let setup = Setup::new().policy(POLICY).shared(&redis).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "1s");
    // The service starts once it has read the overrides, or this time is over.
    let setup = setup.env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "1s");
    let server = setup.start();
    let mut client = Client::connect(&server.http).expect("a connection");
    eventually("the store decides", || {
        let answer = client.post("/v1/check", &json!({ "key": ["user", "alex"] })).json();
        (answer["degraded"] != true).then_some(())
    });
    redis.pause();
    // The answers to the first checks are ready while the calls wait for the rest of the second ones, but the
    // flow-control window is full.
    let mut stuck = Raw::connect(&server.grpc, 0).expect("a connection");
    let message = framed(&check(&["user", "alex"]));
    let messages = [&message, &message[..message.len() / 2]].concat();
    (0..CALLS).try_for_each(|_| stuck.begin(STREAM, &messages)).expect("sent");
    server.wait_for_metric("weir_degraded_total{domain=\"default\",mode=\"local\"}", CALLS as f64);
    // This connection has the most waiting calls, and is closed to free capacity.
    let _others = half_open(&server, 9, CHECK);
    server.wait_for_metric(CLOSED, 1.0);
    stuck.end().expect("it is closed");
    redis.resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn thousands_of_health_watches_use_bounded_memory() {
    let server = Server::with_policy(POLICY);
    let resident = server.resident();
    let open = |_| {
        let mut raw = Raw::connect(&server.grpc, 65_535).expect("a connection");
        for _ in 0..CALLS {
            raw.ask(WATCH, &HealthCheckRequest::default()).expect("a call");
        }
        raw
    };
    let mut held: Vec<_> = (0..20).map(open).collect();
    let beyond = (20 * (CALLS - 4)) as f64;
    eventually("all but four of each are refused", || (server.metric(OPEN) >= beyond).then_some(()));
    for raw in &mut held {
        raw.discard().expect("the connection goes on");
    }
    let grown = server.resident().saturating_sub(resident);
    assert!(grown < MOST_GROWTH, "memory has grown by {grown} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_without_its_message_times_out() {
    let server = Setup::new().policy(POLICY).env("WEIR_GRPC__MESSAGE_TIMEOUT", "100ms").start();
    for (path, ended) in [(CHECK, 1.0), (HEALTH, 2.0), (WATCH, 3.0)] {
        let (headers, _open) = begin_call(&server.grpc, path).await;
        let status = Status::from_header_map(&headers).expect("a status");
        assert_eq!(
            (status.code(), status.message()),
            (Code::DeadlineExceeded, "the message of the call did not come in time")
        );
        server.wait_for_metric(LATE, ended);
    }
    let mut client = server.client().await;
    let (send, requests) = sent_checks();
    let mut answers = client.check_stream(requests).await.expect("a stream").into_inner();
    tokio::time::sleep(Duration::from_millis(300)).await;
    send.send(check(&["user", "alex"])).await.expect("open");
    assert!(answers.message().await.expect("open").expect("an answer").allowed, "a stream may begin before it asks");
}

#[tokio::test]
async fn health_watches_are_limited_per_connection() {
    let server = Server::with_policy(POLICY);
    let (channel, mut watches) = (server.channel().await, Vec::new());
    let watch = async |channel| HealthClient::new(channel).watch(HealthCheckRequest::default()).await;
    for _ in 0..4 {
        let mut watched = watch(channel.clone()).await.expect("a watch").into_inner();
        let answer: HealthCheckResponse = watched.message().await.expect("open").expect("the status");
        assert_eq!(answer.status, 1);
        watches.push(watched);
    }
    let refused = watch(channel.clone()).await.expect_err("too many");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.get_details_retry_info().expect("when").retry_delay, Some(Duration::from_secs(1)));
    assert_eq!(server.metric(OPEN), 1.0);
    watch(server.channel().await).await.expect("another connection has its own");
    drop(watches.pop());
    eventually_async("there is room again", async || watch(channel.clone()).await.ok()).await;
}

#[tokio::test]
async fn open_check_streams_are_limited_per_listener() {
    let server = Setup::new().policy(POLICY).env("WEIR_GRPC__MAX_OPEN_STREAMS", "1").start();
    let open = async || {
        let (send, requests) = sent_checks();
        server.client().await.check_stream(requests).await.map(|answers| (send, answers))
    };
    let first = open().await.expect("a stream");
    assert_eq!(open().await.expect_err("too many").code(), Code::ResourceExhausted);
    drop(first);
    eventually_async("there is room again", async || open().await.ok()).await;
}
