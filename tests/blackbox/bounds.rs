//! Bounds of connections and requests: connection ages, idle timeouts, rates, and requests in flight.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use weir::proto::CheckBatchRequest;
use weir_test_redis::{Options, Server as Redis};

use crate::support::{
    Server, eventually, eventually_async,
    http::{self, Answer, Client},
    in_time,
    requests::{check, open_stream, reset, was_never_sent},
    server::Setup,
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[999999, 1000, 1]] } } } }";
const AGED: &str = "weir_connections_closed_total{listener=\"grpc\",reason=\"age\"}";
const ANSWERED: &str = "weir_checks_total{domain=\"default\",transport=\"grpc\",outcome=\"allowed\"}";
const OLD: &str = "the connection has lasted as long as it may: open the stream again on another";

fn setup(settings: &[(&str, &str)]) -> Setup {
    settings.iter().fold(Setup::new().policy(POLICY), |setup, (name, value)| setup.env(name, value))
}

/// Returns the status, the retry time, and the fixed part of the problem document of a shed request.
fn shed(answer: &Answer) -> (u16, Option<&str>, Value) {
    let mut problem = answer.json();
    problem.as_object_mut().expect("a problem").retain(|name, _| name == "type" || name == "status");
    (answer.status, answer.header("retry-after"), problem)
}

fn expected_shed() -> (u16, Option<&'static str>, Value) {
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    (429, Some("1"), json!({ "type": kind, "status": 429 }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_at_their_maximum_age_close_without_failed_calls() {
    const AGES: f64 = 6.0;
    let server = setup(&[("WEIR_GRPC__MAX_CONNECTION_AGE", "100ms")]).start();
    let (mut answered, mut sent_again) = (0_u32, 0_u32);
    let mut client = server.client().await;
    while server.metric(AGED) < AGES {
        for _ in 0..10 {
            match in_time("an answer", client.check(check(&["user", "alex"]))).await {
                Ok(_) => answered += 1,
                Err(status) if was_never_sent(&status) => sent_again += 1,
                Err(status) => panic!("a call has failed: {status:?}"),
            }
        }
    }
    assert_eq!(server.metric(ANSWERED), f64::from(answered), "each was taken once");
    assert!(f64::from(sent_again) <= server.metric(AGED), "{sent_again} were sent again, at most one at each end");
}

/// Sends one check on a stream that then stays open. Returns the status of its end.
async fn end_of_stream(server: &Server) -> Status {
    let (_send, mut answers) = open_stream(&mut server.client().await, check(&["user", "alex"])).await;
    in_time("the end of the stream", answers.message()).await.expect_err("the stream ends")
}

#[tokio::test]
async fn streams_of_an_aged_connection_end_with_unavailable_after_the_grace() {
    let ages = [("WEIR_GRPC__MAX_CONNECTION_AGE", "100ms"), ("WEIR_GRPC__MAX_CONNECTION_AGE_GRACE", "200ms")];
    let server = setup(&ages).start();
    let since = Instant::now();
    let status = end_of_stream(&server).await;
    assert_eq!((status.code(), status.message()), (Code::Unavailable, OLD));
    assert!(since.elapsed() >= Duration::from_millis(290), "it had the grace: {:?}", since.elapsed());

    let watched = HealthClient::new(server.channel().await).watch(HealthCheckRequest::default()).await;
    let mut watched = watched.expect("a stream").into_inner();
    watched.message().await.expect("open").expect("the status");
    let status = in_time("the end of the watch", watched.message()).await.expect_err("the watch ends");
    assert_eq!((status.code(), status.message()), (Code::Unavailable, OLD));
}

#[tokio::test]
async fn a_stream_that_finishes_within_the_grace_period_is_not_cut() {
    let server = Arc::new(setup(&[("WEIR_GRPC__MAX_CONNECTION_AGE", "100ms")]).start());
    let (send, mut answers) = open_stream(&mut server.client().await, check(&["user", "alex"])).await;
    let waiting = Arc::clone(&server);
    tokio::task::spawn_blocking(move || waiting.wait_for_metric(AGED, 1.0)).await.expect("joined");
    send.send(check(&["user", "alex"])).await.expect("taken");
    drop(send);
    assert!(answers.message().await.expect("open").expect("an answer").allowed);
    assert_eq!(answers.message().await.expect("no error"), None);
}

#[test]
fn an_http_1_connection_at_its_maximum_age_gets_connection_close() {
    let server = setup(&[("WEIR_HTTP__MAX_CONNECTION_AGE", "100ms")]).start();
    for _ in 0..3 {
        let mut client = Client::connect(&server.http).expect("a connection");
        eventually("the last answer", || {
            let answer = client.post("/v1/check", &json!({ "key": ["user", "alex"] }));
            assert_eq!(answer.status, 200, "{answer:?}");
            (answer.header("connection") == Some("close")).then_some(())
        });
        assert!(client.ends());
    }
    assert!(server.metric("weir_connections_closed_total{listener=\"http\",reason=\"age\"}") >= 3.0);
}

#[test]
fn an_http_1_connection_without_a_further_request_is_closed_after_the_grace() {
    let ages = [("WEIR_HTTP__MAX_CONNECTION_AGE", "100ms"), ("WEIR_HTTP__MAX_CONNECTION_AGE_GRACE", "300ms")];
    let server = setup(&ages).start();
    let since = Instant::now();
    let mut client = Client::connect(&server.http).expect("a connection");
    assert_eq!(client.ask("GET /healthz", &[], b"").expect("an answer").status, 200);
    assert!(client.ends());
    // Without an age it would be closed after 10 s.
    let expected = Duration::from_millis(390)..Duration::from_secs(8);
    assert!(expected.contains(&since.elapsed()), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn idle_connections_are_closed_and_busy_ones_are_kept() {
    let server = setup(&[("WEIR_GRPC__IDLE_TIMEOUT", "200ms")]).start();
    let (mut busy, mut idle) = (server.client().await, server.client().await);
    let (send, mut answers) = open_stream(&mut busy, check(&["user", "alex"])).await;
    idle.check(check(&["user", "alex"])).await.expect("an answer");
    server.wait_for_metric("weir_connections_closed_total{listener=\"grpc\",reason=\"idle\"}", 1.0);
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 1.0);
    send.send(check(&["user", "alex"])).await.expect("taken");
    assert!(answers.message().await.expect("open").expect("an answer").allowed, "silent for long, but not idle");
    drop(send);
    assert_eq!(answers.message().await.expect("no error"), None);
    server.wait_for_metric("weir_connections_closed_total{listener=\"grpc\",reason=\"idle\"}", 2.0);
}

#[test]
fn an_idle_http_connection_is_closed() {
    let server = setup(&[("WEIR_HTTP__IDLE_TIMEOUT", "200ms")]).start();
    let mut client = Client::connect(&server.http).expect("a connection");
    assert_eq!(client.post("/v1/check", &json!({ "key": ["user", "alex"] })).status, 200);
    assert!(client.ends());
    server.wait_for_metric("weir_connections_closed_total{listener=\"http\",reason=\"idle\"}", 1.0);
}

#[tokio::test]
async fn a_connection_may_have_as_many_open_calls_as_the_setting_says() {
    let server = setup(&[("WEIR_GRPC__MAX_STREAMS", "3")]).start();
    let stream = tokio::net::TcpStream::connect(&server.grpc).await.expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    eventually_async("the settings", async || (client.current_max_send_streams() == 3).then_some(())).await;
}

#[tokio::test]
async fn the_request_rate_limit_is_per_connection_and_gives_a_retry_delay() {
    const RATE: u32 = 5;
    let server = setup(&[("WEIR_GRPC__MAX_REQUESTS_PER_SECOND", "5")]).start();
    let (mut client, mut other) = (server.client().await, server.client().await);
    let since = Instant::now();
    let (mut allowed, mut refused) = (0, 0);
    let wait = loop {
        match client.check(check(&["user", "alex"])).await {
            Ok(_) => allowed += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                assert!(allowed >= RATE, "a second's worth passes at once");
                let wait =
                    status.get_details_retry_info().and_then(|info| info.retry_delay).expect("when to come back");
                assert!(wait > Duration::ZERO && wait <= Duration::from_secs(1) / RATE, "{wait:?}");
                refused += 1;
                if refused == 100 {
                    break wait;
                }
            }
        }
    };
    let most = RATE + (since.elapsed().as_secs_f64() * f64::from(RATE)).ceil() as u32;
    assert!((RATE..=most).contains(&allowed), "{allowed} passed, not {most}");
    assert_eq!(server.metric("weir_requests_rejected_total{listener=\"grpc\",reason=\"rate\"}"), f64::from(refused));
    assert_eq!(server.metric(ANSWERED), f64::from(allowed));
    other.check(check(&["user", "alex"])).await.expect("another connection has its own");
    tokio::time::sleep(wait).await;
    client.check(check(&["user", "alex"])).await.expect("it passes when it was told to come back");
}

#[test]
fn http_requests_above_the_rate_limit_get_429() {
    let server = setup(&[("WEIR_HTTP__MAX_REQUESTS_PER_SECOND", "1")]).start();
    let mut client = Client::connect(&server.http).expect("a connection");
    let mut ask = || client.post("/v1/check", &json!({ "key": ["user", "alex"] }));
    assert_eq!(ask().status, 200);
    let refused = eventually("a refusal", || Some(ask()).filter(|answer| answer.status != 200));
    assert_eq!(shed(&refused), expected_shed());
    assert!(server.metric("weir_requests_rejected_total{listener=\"http\",reason=\"rate\"}") >= 1.0);
}

#[test]
fn probes_and_the_port_of_the_metrics_have_no_rate_limit() {
    let server = setup(&[("WEIR_HTTP__MAX_REQUESTS_PER_SECOND", "1"), ("WEIR_METRICS__LISTEN", "127.0.0.1:0")]).start();
    let pages = server.wait_for_log("serving")["metrics"].as_str().expect("an address").to_owned();
    let (probes, scrapes) = (["/healthz", "/readyz", "/healthcheck"], ["/metrics", "/healthz", "/readyz"]);
    for (address, paths) in [(&server.http, probes), (&pages, scrapes)] {
        let mut client = Client::connect(address).expect("a connection");
        for path in paths.iter().cycle().take(30) {
            let answer = client.ask(&format!("GET {path}"), &[], b"").expect("an answer");
            assert_eq!(answer.status, 200, "{path} at {address}");
        }
    }
}

#[test]
fn unfinished_bodies_over_http_are_bounded_together() {
    const BODIES: usize = 64;
    let server = setup(&[]).start();
    let mut unfinished = Vec::new();
    for _ in 0..BODIES {
        let mut stream = TcpStream::connect(&server.http).expect("a connection");
        let head = "POST /v1/check HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("sent");
        // The rest of a rejected body is not read.
        let _ = stream.write_all(&vec![b' '; 999_999]);
        unfinished.push(stream);
        let mut good = Client::connect(&server.http).expect("a connection");
        assert_eq!(good.post("/v1/check", &json!({ "key": ["user", "alex"] })).status, 200);
    }
    // At most 16 MiB of bodies are kept.
    let rejected = "weir_requests_rejected_total{listener=\"http\",reason=\"open\"}";
    eventually("rejected bodies", || (server.metric(rejected) >= (BODIES - 17) as f64).then_some(()));
    let mut answer = [0; 12];
    unfinished[0].read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 429");
}

#[test]
fn probes_and_scrapes_have_a_port_of_their_own() {
    let server = setup(&[("WEIR_METRICS__LISTEN", "127.0.0.1:0")]).start();
    let pages = server.wait_for_log("serving")["metrics"].as_str().expect("an address").to_owned();
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(http::get(&pages, path).expect("a page").0, 200, "{path}");
    }
    assert_eq!(http::get(&pages, "/v1/check").expect("a page").0, 404);
}

#[tokio::test]
async fn a_stream_above_the_request_rate_is_throttled() {
    const RATE: u32 = 20;
    const SENT: usize = 50;
    let server = setup(&[("WEIR_GRPC__MAX_REQUESTS_PER_SECOND", "20")]).start();
    let mut client = server.client().await;
    let since = Instant::now();
    let requests = futures_util::stream::iter((0..SENT).map(|_| check(&["user", "alex"])));
    let mut answers = client.check_stream(requests).await.expect("a stream").into_inner();
    let mut answered = 0;
    while let Some(answer) = in_time("an answer", answers.message()).await.expect("no error") {
        assert!(answer.allowed);
        answered += 1;
    }
    assert_eq!(answered, SENT);
    // The call itself counts too.
    let least = Duration::from_secs(1) * (SENT as u32 + 1 - RATE) / RATE;
    assert!(since.elapsed() >= least, "{answered} answers after {:?}, not {least:?}", since.elapsed());
    assert_eq!(server.metric("weir_requests_rejected_total{listener=\"grpc\",reason=\"rate\"}"), 0.0);
}

/// Starts a service with a paused store, and as many waiting checks as this setting permits.
async fn full(redis: &Redis, setting: &str) -> (Arc<Server>, JoinSet<Result<(), Status>>) {
    const PLACES: usize = 2;
    let server = Arc::new(Setup::new().policy(POLICY).shared(redis).env(setting, &PLACES.to_string()).start());
    // The connection to the store must be open before the pause.
    server.client().await.check(check(&["user", "alex"])).await.expect("an answer");
    redis.pause();
    let mut held = JoinSet::new();
    for _ in 0..=PLACES {
        let (server, over_http) = (Arc::clone(&server), setting.starts_with("WEIR_HTTP"));
        if over_http {
            held.spawn_blocking(move || match ask_over_http(&server) {
                Answer { status: 200, .. } => Ok(()),
                refused => Err(Status::unknown(refused.body)),
            });
        } else {
            let mut client = server.client().await;
            held.spawn(async move { client.check(check(&["user", "alex"])).await.map(|_| ()) });
        }
    }
    // There is one more check than `PLACES`, and one is refused: the others occupy all of them.
    let refused = in_time("a refusal", held.join_next()).await.expect("one").expect("joined");
    assert!(refused.is_err());
    (server, held)
}

fn ask_over_http(server: &Server) -> Answer {
    let mut client = Client::connect(&server.http).expect("a connection");
    client.post("/v1/check", &json!({ "key": ["user", "alex"] }))
}

async fn all_pass(mut held: JoinSet<Result<(), Status>>) {
    while let Some(done) = in_time("an answer", held.join_next()).await {
        done.expect("joined").expect("those that had a place are answered");
    }
}

fn assert_shed(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let info = status.get_details_retry_info().expect("when to come back");
    assert_eq!(info.retry_delay, Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn checks_above_the_concurrency_limit_are_shed_immediately() {
    let redis = Redis::start(Options::socket());
    let (server, held) = full(&redis, "WEIR_GRPC__MAX_CONCURRENT_REQUESTS").await;
    let mut client = server.client().await;
    assert_shed(&in_time("an answer", client.check(check(&["user", "alex"]))).await.expect_err("there is no place"));
    let batch = CheckBatchRequest { checks: vec![check(&["user", "alex"]); 3] };
    assert_shed(&client.check_batch(batch).await.expect_err("one place for all of it"));
    let batch = CheckBatchRequest { checks: vec![check(&["free"]), check(&["user", "alex"]), check(&["free"])] };
    let results = client.check_batch(batch).await.expect("its first check is decided").into_inner().results;
    let codes: Vec<_> = results.iter().map(|result| result.error.as_ref().map_or(0, |error| error.code)).collect();
    assert_eq!(codes, [0, Code::ResourceExhausted as i32, 0]);
    assert_shed(&client.reset(reset(&["user"], false)).await.expect_err("a reset waits too"));
    let stream = client.check_stream(futures_util::stream::iter([check(&["user", "alex"]), check(&["free"])])).await;
    let mut answers = stream.expect("an open stream takes no place").into_inner();
    let answer = answers.message().await.expect("open").expect("an answer");
    assert_eq!(answer.error.expect("in its place").code, Code::ResourceExhausted as i32);
    assert!(answers.message().await.expect("open").expect("an answer").allowed, "what asks no store needs none");
    client.check(check(&["free"])).await.expect("the same for a call");
    let mut health = HealthClient::new(server.channel().await);
    health.check(HealthCheckRequest::default()).await.expect("health is answered all the same");
    assert_eq!(server.metric("weir_requests_rejected_total{listener=\"grpc\",reason=\"concurrency\"}"), 6.0);
    // Checks that are shed count as errors.
    for (transport, checks) in [("grpc", 2.0), ("grpc_batch", 2.0), ("grpc_stream", 1.0)] {
        let errors = format!("weir_checks_total{{domain=\"other\",transport=\"{transport}\",outcome=\"error\"}}");
        assert_eq!(server.metric(&errors), checks, "{transport}");
    }
    redis.resume();
    all_pass(held).await;
    client.check(check(&["user", "alex"])).await.expect("there is room again, as each gives its place back");
}

#[tokio::test]
async fn http_requests_above_the_concurrency_limit_get_429() {
    let redis = Redis::start(Options::socket());
    let (server, held) = full(&redis, "WEIR_HTTP__MAX_CONCURRENT_REQUESTS").await;
    assert_eq!(shed(&ask_over_http(&server)), expected_shed());
    assert_eq!(server.get("/readyz").0, 200);
    assert_eq!(server.metric("weir_requests_rejected_total{listener=\"http\",reason=\"concurrency\"}"), 2.0);
    redis.resume();
    all_pass(held).await;
    assert_eq!(ask_over_http(&server).status, 200, "there is room again");
}
