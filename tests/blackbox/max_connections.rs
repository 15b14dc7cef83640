//! A new connection at `max_connections`: which one it replaces.

use std::{io, net::TcpStream, time::Instant};

use rustix::process::Signal;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use weir::proto::{CheckBatchRequest, CheckResponse, rate_limiter_client::RateLimiterClient};

use crate::{
    support::{
        eventually, http, in_time,
        pki::{Authority, Leaf, channel},
        raw::Raw,
        requests::{check, open_stream, sent_checks},
        server::Setup,
    },
    tokens::{by, caller, token},
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[999999, 1000, 1]] } } } }";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
/// Number of connections to the port of metrics and probes.
const METRICS_CONNECTIONS: usize = 64;
const AT_MAX_CONNECTIONS: &str = "connections are evicted or rejected: max_connections are open";

fn evicted(listener: &str) -> String {
    format!("weir_connections_closed_total{{listener=\"{listener}\",reason=\"evicted\"}}")
}

fn setup(max_connections: &str) -> Setup {
    let setup = Setup::new().policy(POLICY).env("WEIR_GRPC__MAX_CONNECTIONS", max_connections);
    setup.env("WEIR_HTTP__MAX_CONNECTIONS", max_connections)
}

/// Opens this many connections and sends nothing.
fn silent(address: &str, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).expect("a connection")).collect()
}

/// Opens this many connections with one request each, whose answers the client leaves unread.
fn held(address: &str, count: usize, ask: impl Fn(&mut Raw) -> io::Result<()>) -> Vec<Raw> {
    let open = |_| {
        let mut raw = Raw::connect(address, 0).expect("a connection");
        // A connection that is replaced immediately may be closed by now.
        let _ = ask(&mut raw);
        raw
    };
    (0..count).map(open).collect()
}

/// Asks for a page. `None`: the connection was closed.
fn page(address: &str, path: &str) -> Option<u16> {
    http::get(address, path).ok().map(|(status, _)| status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unauthenticated_clients_do_not_lock_out_others() {
    const MOST: usize = 8;
    let known = token();
    let callers = format!("callers:\n{}", caller("shop", "check, metrics", &known, ""));
    let server = setup(&MOST.to_string()).credentials(&callers).start();
    let mut busy = server.client().await;
    let (send, checks) = sent_checks();
    send.send(check(&["user", "alex"])).await.expect("taken");
    let stream = busy.check_stream(by(Some(&known.token), checks)).await.expect("a stream");
    let mut answers = stream.into_inner();
    let message = HealthCheckRequest::default();
    let _held = [
        held(&server.grpc, 2 * MOST, |raw| raw.ask(WATCH, &message)),
        held(&server.grpc, 2 * MOST, |raw| raw.ask(HEALTH, &message)),
        held(&server.grpc, 2 * MOST, |raw| raw.call(HEALTH)),
        held(&server.http, 2 * MOST, |raw| raw.get("/healthz")),
        held(&server.http, 2 * MOST, |raw| raw.call("/healthz")),
    ];
    for _ in 0..2 * MOST {
        let mut client = server.client().await;
        in_time("an answer", client.check(by(Some(&known.token), check(&["user", "new"])))).await.expect("a slot");
        assert_eq!(page(&server.http, "/readyz"), Some(200));
    }
    assert_eq!(server.run(&["health"]).code, 0);
    send.send(check(&["user", "alex"])).await.expect("taken");
    for _ in 0..2 {
        let answer: CheckResponse = in_time("an answer", answers.message()).await.expect("open").expect("an answer");
        assert!(answer.allowed, "a stream of a client that has authenticated stays");
    }
    assert_eq!(server.metric_by(&known.token, "weir_connections_rejected_total{listener=\"grpc\"}"), 0.0);
    assert_eq!(server.metric_by(&known.token, "weir_connections_rejected_total{listener=\"http\"}"), 0.0);
}

#[test]
fn unread_answers_do_not_lock_out_probes_and_scrapes() {
    let server = Setup::new().policy(POLICY).env("WEIR_METRICS__LISTEN", "127.0.0.1:0").start();
    let pages = server.wait_for_log("serving")["metrics"].as_str().expect("an address").to_owned();
    for path in ["/healthz", "/metrics", "/v1/check"] {
        let _held = held(&pages, 2 * METRICS_CONNECTIONS, |raw| raw.get(path));
        for _ in 0..METRICS_CONNECTIONS {
            assert_eq!((page(&pages, "/healthz"), page(&pages, "/metrics")), (Some(200), Some(200)), "{path}");
        }
    }
    assert_eq!(server.metric("weir_connections_rejected_total{listener=\"metrics\"}"), 0.0);
}

#[tokio::test]
async fn certificates_of_unknown_clients_do_not_lock_out_others() {
    let authority = Authority::new("ours");
    let [known, unknown] = ["shop.example", "stranger.example"].map(|host| authority.sign(Leaf::host(host)));
    let server = setup("4")
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .file("WEIR_GRPC__TLS__CLIENT_CA", "clients.pem", &authority.pem)
        .env("WEIR_GRPC__TLS__MAX_HANDSHAKES", "3")
        .credentials("callers: { shop: { roles: [check], certificates: [shop.example] } }")
        .start();
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut health = HealthClient::new(channel(&server.grpc, &authority, Some(&unknown)).await.expect("connected"));
        held.push(health.watch(HealthCheckRequest::default()).await.expect("a watch"));
    }
    let mut shop = RateLimiterClient::new(channel(&server.grpc, &authority, Some(&known)).await.expect("connected"));
    shop.check(check(&["user", "alex"])).await.expect("an answer");
}

#[tokio::test]
async fn the_watch_of_an_evicted_connection_ends_with_a_status() {
    let server = setup("1").start();
    let mut health = HealthClient::new(server.channel().await);
    let mut watch = health.watch(HealthCheckRequest::default()).await.expect("a watch").into_inner();
    in_time("the status", watch.message()).await.expect("open").expect("the status");
    assert_eq!(server.log_lines(AT_MAX_CONNECTIONS).len(), 0);
    let _silent = silent(&server.grpc, 1);
    let line = server.wait_for_log(AT_MAX_CONNECTIONS);
    assert!(line["level"] == "WARN" && line["listener"] == "grpc" && line["max_connections"] == 1, "{line}");
    let status = in_time("the end of the watch", watch.message()).await.expect_err("it ends");
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "too many connections are open: open the stream again on another")
    );
}

#[test]
fn unread_answers_to_unauthenticated_clients_do_not_delay_shutdown() {
    let mut server = Setup::new().policy(POLICY).env("WEIR_SHUTDOWN__TIMEOUT", "1h").start();
    let _held = [
        held(&server.http, 1, |raw| raw.get("/healthz")),
        held(&server.grpc, 1, |raw| raw.ask(HEALTH, &HealthCheckRequest::default())),
    ];
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 1.0);
    let since = Instant::now();
    server.stop();
    assert!(since.elapsed().as_secs() >= 5, "a client that reads slowly has this time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn idle_connections_are_evicted_and_those_with_a_call_are_kept() {
    let server = setup("16").start();
    let (_send, mut answers) = open_stream(&mut server.client().await, check(&["user", "alex"])).await;
    let mut idle = Vec::new();
    for _ in 0..32 {
        let mut client = server.client().await;
        client.check(check(&["user", "alex"])).await.expect("an answer");
        let mut http = http::Client::connect(&server.http).expect("a connection");
        assert_eq!(http.ask("GET /healthz", &[], b"").expect("an answer").status, 200);
        idle.push((client, http));
    }
    for listener in ["grpc", "http"] {
        let series = evicted(listener);
        eventually("those that are idle end", || (server.metric(&series) >= 16.0).then_some(()));
    }
    server.signal(Signal::TERM);
    let last = in_time("the end of service", answers.message()).await;
    let status = last.expect_err("the stream ends");
    assert_eq!(status.message(), "the service is shutting down", "the connection with a call stays");
}

#[test]
fn a_connection_whose_client_reads_an_answer_is_kept() {
    let server = setup("1").start();
    let batch = CheckBatchRequest { checks: vec![check(&["user", "alex"]); 100] };
    // The rest of the answer waits for a larger window.
    let mut reader = Raw::connect(&server.grpc, 1_000).expect("a connection");
    reader.ask("/weir.v1.RateLimiter/CheckBatch", &batch).expect("a call");
    server.wait_for_metric("weir_checks_total{domain=\"default\",transport=\"grpc_batch\",outcome=\"allowed\"}", 100.0);
    let _silent = silent(&server.grpc, 1);
    server.wait_for_metric("weir_connections_rejected_total{listener=\"grpc\"}", 1.0);
    eventually("it is logged", || {
        server.log_lines(AT_MAX_CONNECTIONS).into_iter().find(|line| line["listener"] == "grpc")
    });
    assert_eq!(server.metric(&evicted("grpc")), 0.0);
}

#[tokio::test]
async fn silent_connections_are_evicted_and_those_in_use_are_kept() {
    let server = setup("4").start();
    let mut client = server.client().await;
    client.check(check(&["user", "alex"])).await.expect("an answer");
    let _held = [silent(&server.grpc, 20), silent(&server.http, 20)];
    for _ in 0..20 {
        assert_eq!(server.get("/readyz").0, 200);
        server.client().await.check(check(&["user", "new"])).await.expect("a new connection has a place");
    }
    client.check(check(&["user", "alex"])).await.expect("one that was in use keeps its own");
    assert!(server.metric(&evicted("grpc")) >= 17.0);
    assert!(server.metric(&evicted("http")) >= 17.0);
    assert_eq!(server.metric("weir_connections_rejected_total{listener=\"http\"}"), 0.0);
}
