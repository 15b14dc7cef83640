//! Clients that break the protocol, stall or vanish, while other clients are served.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::support::{
    Server, TIMEOUT,
    raw::Raw,
    requests::{check, open_stream, short},
    server::Setup,
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";
const STREAM: &str = "/weir.v1.RateLimiter/CheckStream";

/// Asserts that both ports answer.
async fn assert_serves(server: &Server) {
    let answer = server.check(check(&["free"])).await;
    assert_eq!(short(&answer), (true, 0, 0));
    assert_eq!(server.get("/healthz"), (200, "ok\n".to_owned()));
}

/// Waits until no connection is open except the one that reads this metric.
fn wait_until_all_are_gone(server: &Server) {
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 0.0);
    server.wait_for_metric("weir_connections{listener=\"http\"}", 1.0);
}

/// Sends bytes, shuts down the write side, and waits until the service has closed the connection.
fn send_and_wait(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    // The service may close before all bytes are written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "closed, not stalled");
    }
}

#[test]
fn protocol_errors_of_clients_are_not_logged_by_default() {
    for (level, is_logged) in [("info", false), ("info,h2=warn", true)] {
        let server = Setup::new().policy(POLICY).env("WEIR_LOG__LEVEL", level).start();
        let mut raw = Raw::connect(&server.grpc, 65_535).expect("a connection");
        (0..100).for_each(|_| raw.stray_ack().expect("sent"));
        raw.call("/weir.v1.RateLimiter/Check").expect("a call");
        raw.only_message(&check(&["free"])).expect("a message");
        assert!(raw.answer::<weir::proto::CheckResponse>().expect("still served").allowed);
        // After this line the log is complete.
        server.signal(rustix::process::Signal::TERM);
        server.wait_for_log("stopped");
        let lines = server.log().iter().filter(|line| line.contains("\"target\":\"h2::")).count();
        assert_eq!(lines > 0, is_logged, "{level}: {lines} lines");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_above_the_limit_are_closed_at_once_and_counted() {
    let server = Setup::new().policy(POLICY).env("WEIR_GRPC__MAX_CONNECTIONS", "2").start();
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(open_stream(&mut server.client().await, check(&["user", "alex"])).await);
    }
    send_and_wait(&server.grpc, b"");
    server.wait_for_metric("weir_connections_rejected_total{listener=\"grpc\"}", 1.0);
    drop(held);
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 0.0);
    assert_serves(&server).await;
}

// Connections of `assert_serves` need a separate thread to close, since this one blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn garbage_half_closed_and_lost_connections_close_alone() {
    let server = Server::with_policy(POLICY);
    let noise: Vec<u8> = (0..64_u32 << 10).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for address in [&server.grpc, &server.http] {
        for bytes in [&noise[..], b"\0", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrubbish", b""] {
            send_and_wait(address, bytes);
        }
    }
    wait_until_all_are_gone(&server);
    assert_serves(&server).await;

    // Half-closed connections are closed.
    send_and_wait(&server.http, b"GET /metr");
    send_and_wait(&server.http, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut raw = Raw::connect(&server.grpc, 65_535).expect("a connection");
    raw.call(STREAM).expect("a call");
    raw.message(&check(&["user", "alex"])).expect("a message");
    raw.close_half().expect("the service closes too");
    wait_until_all_are_gone(&server);
    assert_serves(&server).await;

    // Clients that disconnect in the middle of a stream are cleaned up.
    for _ in 0..20 {
        let mut raw = Raw::connect(&server.grpc, 65_535).expect("a connection");
        raw.call(STREAM).expect("a call");
        raw.message(&check(&["user", "alex"])).expect("a message");
        raw.half_a_frame().expect("half a frame");
    }
    wait_until_all_are_gone(&server);
    assert_serves(&server).await;

    // The service sends nothing on a connection that is closed without a byte.
    let mut silent = TcpStream::connect(&server.grpc).expect("a connection");
    silent.shutdown(Shutdown::Write).expect("closed on this side");
    silent.set_read_timeout(Some(TIMEOUT)).expect("set");
    assert_eq!(silent.read(&mut [0; 64]).expect("closed on the other"), 0);
}

#[test]
fn a_client_that_never_reads_is_throttled_without_blocking_others() {
    const MOST: usize = 1_000_000;
    const ROUND_TRIPS_WITHOUT_PROGRESS: usize = 300;
    // One thread serves both clients.
    let server = Setup::new().policy(POLICY).env("WEIR_GRPC__WORKERS", "1").start();
    let sent = Arc::new(AtomicUsize::new(0));
    let requests = futures_util::stream::iter((0..MOST).map({
        let sent = Arc::clone(&sent);
        move |_| {
            sent.fetch_add(1, Ordering::Relaxed);
            check(&["user", "alex"])
        }
    }));
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    // A separate runtime, which can be shut down like a process.
    let greedy = runtime();
    let _never_read = greedy.block_on(async {
        let mut client = server.client().await;
        (client.check_stream(requests).await.expect("a stream"), client)
    });
    runtime().block_on(async {
        let mut other = server.client().await;
        let (mut before, mut still) = (0, 0);
        while still < ROUND_TRIPS_WITHOUT_PROGRESS {
            let answer = other.check(check(&["user", "berta"])).await.expect("others are served").into_inner();
            assert_eq!(answer.limit, 10);
            let now = sent.load(Ordering::Relaxed);
            still = if now == before { still + 1 } else { 0 };
            before = now;
        }
        assert!(before > 0 && before < MOST, "{before} requests were taken from a client that reads no answer");
        drop(other);
        assert_serves(&server).await;
    });
    greedy.shutdown_background();
    wait_until_all_are_gone(&server);
}
