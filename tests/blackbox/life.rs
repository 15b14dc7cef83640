//! Graceful shutdown, as seen by operators and clients.

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::support::{
    Server, eventually, eventually_async,
    http::Client,
    raw::Raw,
    requests::{check, open_stream},
    server::Setup,
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";
const ENDING: &str = "draining: readiness fails, calls are still served";
const CUT: &str = "shutdown timeout: unfinished calls were closed";

#[test]
fn systemd_learns_when_it_serves_and_when_it_shuts_down() {
    let abstract_name = format!("weir-{}", process::id());
    for is_abstract in [false, true] {
        let setup = Setup::new().policy(POLICY).env("WEIR_SHUTDOWN__DELAY", "1ms");
        let path = setup.path("notify");
        let (address, name) = if is_abstract {
            (SocketAddr::from_abstract_name(&abstract_name), format!("@{abstract_name}"))
        } else {
            (SocketAddr::from_pathname(&path), path.display().to_string())
        };
        let socket = UnixDatagram::bind_addr(&address.expect("an address")).expect("bound");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let receive = || {
            let mut state = [0; 64];
            let len = socket.recv(&mut state).expect("a state");
            String::from_utf8_lossy(&state[..len]).into_owned()
        };
        let mut server = setup.env("NOTIFY_SOCKET", &name).start();
        assert_eq!(receive(), "READY=1");
        assert_eq!(server.get("/readyz").0, 200);
        server.signal(Signal::TERM);
        assert_eq!(receive(), "STOPPING=1");
        assert_eq!(server.wait_for_end(), 0);
    }
    // A service manager that does not read.
    let setup = Setup::new().policy(POLICY).env("WEIR_SHUTDOWN__DELAY", "2s");
    let path = setup.path("unread");
    let _unread = UnixDatagram::bind(&path).expect("bound");
    let mut server = setup.env("NOTIFY_SOCKET", &path.display().to_string()).start();
    assert_eq!(server.get("/readyz").0, 200);
    let is_full = || {
        // A new one each time, since each may have a few datagrams under way.
        let flood = UnixDatagram::unbound().expect("a socket");
        flood.set_nonblocking(true).expect("set");
        flood.send_to(b"full", &path).is_err()
    };
    while !is_full() {}
    server.signal(Signal::TERM);
    server.wait_for_log("cannot notify the service manager");
    let log = server.log();
    let line = |text: &str| log.iter().position(|line| line.contains(text)).expect("logged");
    assert!(line("draining: readiness fails") < line("cannot notify the service manager"), "{log:#?}");
    assert_eq!(server.wait_for_end(), 0);
    // A socket that is gone.
    let setup = Setup::new().policy(POLICY);
    let path = setup.path("nowhere");
    let server = setup.env("NOTIFY_SOCKET", &path.display().to_string()).start();
    server.wait_for_log("cannot notify the service manager");
    assert_eq!(server.get("/readyz").0, 200);
}

#[tokio::test]
async fn draining_fails_readiness_and_serves_calls_until_a_second_signal() {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::INT), (Signal::INT, Signal::TERM)] {
        let mut server = Setup::new().env("WEIR_SHUTDOWN__DELAY", "1h").policy(POLICY).start();
        assert_eq!(server.get("/readyz"), (200, "ready\n".to_owned()));
        assert_eq!(server.get("/healthcheck"), (200, "OK".to_owned()));
        let mut health = HealthClient::new(server.channel().await);
        let (send, mut answers) = open_stream(&mut server.client().await, check(&["user", "alex"])).await;
        server.signal(first);
        server.wait_for_log(ENDING);
        for service in ["", "weir.v1.RateLimiter"] {
            eventually_async("health says no", async || {
                let request = HealthCheckRequest { service: service.to_owned() };
                let status = health.check(request).await.expect("an answer").into_inner().status();
                (status == ServingStatus::NotServing).then_some(())
            })
            .await;
        }
        eventually("the page says no", || (server.get("/readyz") == (503, "draining\n".to_owned())).then_some(()));
        // The answer of envoyproxy/ratelimit in this state.
        assert_eq!(server.get("/healthcheck"), (500, String::new()));
        assert_eq!(server.get("/healthz").0, 200);
        assert_eq!(server.run(&["health"]).code, 1);
        let fresh = server.check(check(&["user", "alex"])).await;
        assert_eq!(fresh.remaining, 8);
        send.send(check(&["user", "alex"])).await.expect("taken");
        assert_eq!(answers.message().await.expect("still open").expect("an answer").remaining, 7);

        let answer = Client::connect(&server.http).expect("a connection").post("/v1/check", &json!({ "key": ["a"] }));
        assert_eq!(answer.status, 200, "calls are still served");

        assert!(server.lives());
        // Within 100 ms of the first signal it would count as the same signal.
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.signal(second);
        assert_eq!(server.wait_for_end(), 4, "{second:?} after {first:?} ends it at once");
        server.wait_for_log("second signal: ending at once");
    }
}

#[tokio::test]
async fn open_streams_end_with_unavailable_and_the_exit_code_is_0() {
    for (signal, at_once) in [(Signal::TERM, Signal::INT), (Signal::INT, Signal::TERM)] {
        let setup = Setup::new().policy(POLICY);
        let snapshot = setup.path("weir.snapshot");
        let mut server = setup.snapshot(&snapshot).start();
        let (_send, mut answers) = open_stream(&mut server.client().await, check(&["user", "alex"])).await;
        server.signal(signal);
        // Like `timeout` of coreutils, which signals the process and then its group.
        server.signal(at_once);
        let status = answers.message().await.expect_err("the stream ends");
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "the service is shutting down"));
        drop(answers);
        assert_eq!(server.wait_for_end(), 0);
        server.wait_for_log("stopped");
        assert!(server.log_lines(CUT).is_empty(), "nothing had to be cut");
        assert!(snapshot.exists());
        for address in [&server.grpc, &server.http] {
            assert!(std::net::TcpStream::connect(address).is_err(), "new connections are refused");
        }
    }
}

// The client needs a separate thread to disconnect, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_continuously_sending_stream_also_ends_with_unavailable() {
    let mut server = Server::with_policy(POLICY);
    let endless = futures_util::stream::iter(std::iter::repeat_with(|| check(&["user", "alex"])));
    let mut answers = server.client().await.check_stream(endless).await.expect("a stream").into_inner();
    answers.message().await.expect("open").expect("an answer");
    server.signal(Signal::TERM);
    let status = loop {
        if let Err(status) = answers.message().await {
            break status;
        }
    };
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    drop(answers);
    assert_eq!(server.wait_for_end(), 0);
}

#[test]
fn a_client_that_does_not_disconnect_is_cut_at_the_shutdown_timeout() {
    let mut server = Setup::new().env("WEIR_SHUTDOWN__TIMEOUT", "100ms").policy(POLICY).start();
    // The client's stream window has no bytes, so that not even the end of its stream can be sent.
    let mut raw = Raw::connect(&server.grpc, 0).expect("a connection");
    raw.call("/weir.v1.RateLimiter/CheckStream").expect("a call");
    raw.message(&check(&["user", "alex"])).expect("a message");
    server.wait_for_metric("weir_checks_total{domain=\"default\",transport=\"grpc_stream\",outcome=\"allowed\"}", 1.0);
    let since = Instant::now();
    server.stop();
    assert!(since.elapsed() < Duration::from_secs(40), "{:?}", since.elapsed());
    server.wait_for_log(CUT);
    drop(raw);
}

#[test]
fn in_flight_http_checks_are_answered_during_shutdown() {
    let mut server = Server::with_policy(POLICY);
    let mut client = Client::connect(&server.http).expect("a connection");
    assert_eq!(client.post("/v1/check", &json!({ "key": ["user", "alex"] })).status, 200);
    let mut idle = Client::connect(&server.http).expect("a connection");
    assert_eq!(idle.post("/v1/check", &json!({ "key": ["user", "alex"] })).status, 200);
    let body = json!({ "key": ["user", "alex"] }).to_string();
    let (begin, end) = body.as_bytes().split_at(5);
    client.send("POST /v1/check", &[("expect", "100-continue")], Some(body.len()), begin).expect("sent");
    assert_eq!(client.receive().expect("it is read").status, 100);
    server.signal(Signal::TERM);
    assert!(idle.ends(), "what is not asked for anything is closed");
    client.send_more(end).expect("sent");
    let answer = client.receive().expect("an answer");
    assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!("7")));
    assert!(client.ends());
    assert_eq!(server.wait_for_end(), 0);
}

#[test]
fn sighup_without_a_policy_keeps_the_server_running() {
    let mut server = Setup::new().start();
    server.signal(Signal::HUP);
    server.wait_for_log("no policy to reload");
    assert!(server.lives());
    assert_eq!(server.get("/readyz").0, 200);
    server.stop();
}

#[test]
fn connections_without_requests_do_not_delay_shutdown() {
    let mut server = Setup::new().policy(POLICY).env("WEIR_SHUTDOWN__TIMEOUT", "1h").start();
    let mut held = Vec::new();
    for (address, bytes) in [(&server.grpc, &b""[..]), (&server.grpc, b"P"), (&server.http, b"G"), (&server.http, b"")]
    {
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        std::io::Write::write_all(&mut stream, bytes).expect("sent");
        held.push(stream);
    }
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 2.0);
    server.stop();
    assert!(server.log_lines(CUT).is_empty());
}

#[test]
fn the_first_call_of_a_delayed_connection_is_served_during_shutdown() {
    let mut server = Setup::new().policy(POLICY).start();
    let mut held_up = Raw::connect_silently(&server.grpc).expect("a connection");
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 1.0);
    server.signal(Signal::TERM);
    eventually("its listener closes", || std::net::TcpStream::connect(&server.grpc).is_err().then_some(()));
    // The client may be suspended for this long, like a virtual machine. Timeouts run in real time here.
    std::thread::sleep(Duration::from_millis(1_500));
    // A client that reads before it calls may get the GOAWAY first and connect elsewhere, so no call fails. This client
    // has sent its call before it reads.
    held_up.preface(65_535).expect("still open");
    held_up.call("/weir.v1.RateLimiter/Check").expect("a call");
    held_up.only_message(&check(&["user", "alex"])).expect("a message");
    assert!(held_up.answer::<weir::proto::CheckResponse>().expect("an answer").allowed);
    drop(held_up);
    assert_eq!(server.wait_for_end(), 0);
    assert!(server.log_lines(CUT).is_empty());
}

#[test]
fn the_first_request_of_a_delayed_http_connection_is_served_during_shutdown() {
    let mut server = Setup::new().policy(POLICY).start();
    let mut told = Raw::connect(&server.grpc, 65_535).expect("a connection");
    told.ask("/weir.v1.RateLimiter/Check", &check(&["user", "alex"])).expect("a call");
    let mut delayed = Client::connect(&server.http).expect("a connection");
    // The metrics are read over the other one.
    server.wait_for_metric("weir_connections{listener=\"http\"}", 2.0);
    server.signal(Signal::TERM);
    told.drained().expect("told to finish");
    let headers = [("content-type", "application/json")];
    let answer = delayed.ask("POST /v1/check", &headers, br#"{"key":["user","alex"]}"#).expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(server.wait_for_end(), 0);
    assert!(server.log_lines(CUT).is_empty());
}

#[test]
fn a_call_that_crosses_the_last_goaway_does_not_break_the_connection() {
    let server = Setup::new().policy(POLICY).env("WEIR_GRPC__MAX_CONNECTION_AGE", "100ms").start();
    let mut client = Raw::connect(&server.grpc, 65_535).expect("a connection");
    client.ask("/weir.v1.RateLimiter/Check", &check(&["user", "alex"])).expect("a call");
    client.drained().expect("a graceful close");
    // The second write fails if the first one reached a closed socket.
    for _ in 0..2 {
        client.ask("/weir.v1.RateLimiter/Check", &check(&["user", "alex"])).expect("still open");
    }
    drop(client);
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 0.0);
    assert_eq!(server.metric("weir_checks_total{domain=\"default\",transport=\"grpc\",outcome=\"allowed\"}"), 1.0);
}

// The clients need a separate thread to disconnect, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn health_and_reflection_streams_end_at_shutdown() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest,
    };
    let mut server = Setup::new().policy(POLICY).env("WEIR_SHUTDOWN__TIMEOUT", "1h").start();
    let mut health = HealthClient::new(server.channel().await);
    let mut watch = health.watch(HealthCheckRequest::default()).await.expect("a stream").into_inner();
    assert_eq!(watch.message().await.expect("open").expect("an answer").status(), ServingStatus::Serving);
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let endless = futures_util::StreamExt::chain(
        futures_util::stream::iter([request]),
        futures_util::stream::pending::<ServerReflectionRequest>(),
    );
    let mut client = ServerReflectionClient::new(server.channel().await);
    let mut reflection = client.server_reflection_info(endless).await.expect("a stream").into_inner();
    reflection.message().await.expect("open").expect("an answer");

    server.signal(Signal::TERM);
    assert_eq!(watch.message().await.expect("open").expect("an answer").status(), ServingStatus::NotServing);
    assert_eq!(watch.message().await.expect_err("the end").code(), Code::Unavailable);
    assert_eq!(reflection.message().await.expect_err("the end").code(), Code::Unavailable);
    drop((health, client, watch, reflection));
    assert_eq!(server.wait_for_end(), 0);
    assert!(server.log_lines(CUT).is_empty());
}
