//! Abusive clients: each is closed or throttled, other clients are served in the meantime, and memory does not grow.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt};
use tonic::metadata::MetadataValue;
use weir::proto::{CheckBatchRequest, CheckRequest};

use crate::support::{
    Server, TIMEOUT, eventually_async,
    http::Client,
    raw::{ENHANCE_YOUR_CALM, Raw, is_closed},
    requests::{check, short},
    server::Setup,
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";
const CHECK: &str = "/weir.v1.RateLimiter/Check";
const CHECK_STREAM: &str = "/weir.v1.RateLimiter/CheckStream";
/// Maximum memory growth in bytes: memory kept by allocators, and buffers of open connections.
const MOST_GROWTH: usize = 64 << 20;
/// Number of answers for another client during the abuse.
const LEAST_ANSWERS: usize = 50;

/// Starts a service with one worker thread.
fn server() -> Server {
    Setup::new().policy(POLICY).env("WEIR_GRPC__WORKERS", "1").start()
}

/// Repeats `harm` on a separate thread until another client has been answered often enough. Asserts that memory has not
/// grown.
async fn others_are_answered<T: Send + 'static>(
    server: &Server,
    mut harm: impl FnMut(&str) -> T + Send + 'static,
) -> Vec<T> {
    let mut other = server.client().await;
    other.check(check(&["user", "other"])).await.expect("an answer");
    let before = server.resident();
    let enough = Arc::new(AtomicBool::new(false));
    let harmful = thread::spawn({
        let (address, enough) = (server.grpc.clone(), Arc::clone(&enough));
        move || {
            let mut done = vec![harm(&address)];
            while !enough.load(Ordering::Relaxed) {
                done.push(harm(&address));
            }
            done
        }
    });
    for _ in 0..LEAST_ANSWERS {
        let answer = tokio::time::timeout(TIMEOUT, other.check(check(&["user", "other"]))).await.expect("in time");
        assert_eq!(answer.expect("an answer").into_inner().limit, 10);
    }
    enough.store(true, Ordering::Relaxed);
    let done = tokio::task::spawn_blocking(|| harmful.join().expect("it ends")).await.expect("joined");
    assert_eq!(short(&server.check(check(&["user", "new"])).await).1, 10);
    let grown = server.resident().saturating_sub(before);
    assert!(grown < MOST_GROWTH, "memory has grown by {grown} bytes");
    done
}

/// Opens and resets calls, a thousand at a time, until the connection is closed.
fn reset_until_closed(address: &str, path: &str) -> (u32, Option<u32>) {
    const AT_ONCE: u32 = 1_000;
    const MOST: u32 = 1_000_000;
    let mut raw = Raw::connect(address, 65_535).expect("a connection");
    let mut sent = 0;
    while sent < MOST {
        match raw.take_back(path, AT_ONCE) {
            Ok(()) => sent += AT_ONCE,
            Err(error) => {
                assert!(is_closed(&error), "{error}");
                break;
            }
        }
    }
    assert!(sent < MOST, "the service accepts a million resets");
    (sent, raw.end().expect("closed"))
}

#[tokio::test]
async fn rapid_reset_closes_the_connection() {
    let server = server();
    // Including calls that are answered with headers only.
    let mut ended = Vec::new();
    for path in [
        CHECK,
        "/weir.v1.Nobody/Call",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas",
    ] {
        ended.extend(others_are_answered(&server, move |address| reset_until_closed(address, path)).await);
    }
    assert!(ended.iter().all(|(_, reason)| matches!(reason, None | Some(ENHANCE_YOUR_CALM))), "{ended:?}");
    let open = async || (server.metric("weir_connections{listener=\"grpc\"}") == 0.0).then_some(());
    eventually_async("no connection is open", open).await;
    let closed = server.metric("weir_connections_closed_total{listener=\"grpc\",reason=\"rapid_reset\"}");
    assert_eq!(closed, ended.len() as f64);

    // A burst of 200 resets does not close it.
    let ended = tokio::task::spawn_blocking(move || {
        let mut raw = Raw::connect(&server.grpc, 65_535).expect("a connection");
        raw.take_back(CHECK, 200).expect("sent");
        raw.no_more().expect("said");
        raw.end().expect("closed in good order")
    });
    assert_ne!(ended.await.expect("joined"), Some(ENHANCE_YOUR_CALM));
}

/// Most libraries send each message of a stream in a separate frame, of which HTTP/2 holds few.
#[tokio::test]
async fn a_stream_may_be_a_thousand_messages_ahead_of_its_answers() {
    let server = Setup::new().policy(POLICY).env("WEIR_GRPC__MAX_REQUESTS_PER_SECOND", "1000").start();
    let one_by_one = |_| async {
        tokio::task::yield_now().await;
        check(&["user", "alex"])
    };
    let checks = futures_util::stream::iter(0..3_000).then(one_by_one);
    let answers = server.client().await.check_stream(checks).await.expect("a stream").into_inner();
    assert_eq!(answers.try_fold(0, async |answered, _| Ok(answered + 1)).await.expect("no error"), 3_000);

    // The shortest ones, which arrive in one burst.
    let ended = tokio::task::spawn_blocking({
        let address = server.grpc.clone();
        move || {
            let mut raw = Raw::connect(&address, 65_535).expect("a connection");
            raw.call(CHECK_STREAM).expect("a call");
            raw.messages(&check(&["a"]), 1_500).expect("sent");
            raw.no_more().expect("said");
            raw.end().expect("closed in good order")
        }
    });
    assert_ne!(ended.await.expect("joined"), Some(ENHANCE_YOUR_CALM));
    let flooded = "weir_connections_closed_total{listener=\"grpc\",reason=\"flooded\"}";
    assert_eq!(server.metric(flooded), 0.0);

    let ended = others_are_answered(&server, move |address| {
        let mut raw = Raw::connect(address, 65_535).expect("a connection");
        raw.call(CHECK_STREAM).expect("a call");
        while raw.message(&check(&["user", "alex"])).is_ok() {}
        raw.end()
    })
    .await;
    assert!(ended.iter().all(|end| !matches!(end, Ok(Some(code)) if *code != ENHANCE_YOUR_CALM)), "{ended:?}");
    let closed = async || (server.metric(flooded) == ended.len() as f64).then_some(());
    eventually_async("each is counted", closed).await;
}

#[tokio::test]
async fn endless_continuation_frames_close_the_connection() {
    let server = server();
    for size in [0, 1, 126] {
        let ended = others_are_answered(&server, move |address| {
            let mut raw = Raw::connect(address, 65_535).expect("a connection");
            if let Err(error) = raw.head_without_end(size, 10_000) {
                assert!(is_closed(&error), "{error}");
            }
            raw.end().expect("closed")
        })
        .await;
        assert!(ended.iter().all(|reason| matches!(reason, None | Some(ENHANCE_YOUR_CALM))), "{size}: {ended:?}");
    }
}

#[tokio::test]
async fn a_ping_flood_without_reads_is_throttled() {
    const AT_ONCE: usize = 1_000;
    const MOST: usize = 300;
    let server = server();
    others_are_answered(&server, |address| {
        let mut raw = Raw::connect(address, 65_535).expect("a connection");
        raw.wait_at_most(Duration::from_millis(100)).expect("set");
        for _ in 0..MOST {
            match raw.pings_and_settings(AT_ONCE) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
                Err(error) => assert!(is_closed(&error), "{error}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn oversized_metadata_and_headers_fail_only_their_own_call() {
    let server = server();
    let mut client = server.client().await;
    assert_eq!(short(&client.check(check(&["user", "alex"])).await.expect("an answer").into_inner()), (true, 10, 9));
    for bytes in [15 << 10, 20 << 10] {
        let mut request = tonic::Request::new(check(&["user", "alex"]));
        let value = MetadataValue::try_from("a".repeat(bytes)).expect("text");
        request.metadata_mut().insert("x-giant", value);
        let answer = client.check(request).await;
        assert_eq!(answer.is_ok(), bytes < 16 << 10, "{bytes}: {answer:?}");
    }
    assert_eq!(client.check(check(&["user", "alex"])).await.expect("the connection goes on").into_inner().remaining, 7);

    let mut http = Client::connect(&server.http).expect("a connection");
    let giant = "a".repeat(128 << 10);
    // The service may close before all bytes are written.
    let _ = http.send("GET /healthz", &[("x-giant", &giant)], None, b"");
    if let Ok(answer) = http.receive() {
        assert_eq!(answer.status, 431, "{answer:?}");
    }
    assert_eq!(server.get("/healthz").0, 200);
}

#[tokio::test]
async fn a_key_flood_is_bounded_and_leaves_known_keys_intact() {
    const MOST: usize = 1_000;
    let server = Setup::new().policy(POLICY).env("WEIR_STORE__MAX_KEYS", &MOST.to_string()).start();
    let mut client = server.client().await;
    assert_eq!(client.check(check(&["user", "alex"])).await.expect("an answer").into_inner().remaining, 9);
    let one = |number: usize| CheckRequest { summary_only: true, ..check(&["user", &number.to_string()]) };
    let (mut allowed, mut refused) = (0, 0);
    for part in 0..20 {
        let checks = (part * 1_000..(part + 1) * 1_000).map(one).collect();
        for answer in client.check_batch(CheckBatchRequest { checks }).await.expect("an answer").into_inner().results {
            assert_eq!(answer.error, None);
            *(if answer.allowed { &mut allowed } else { &mut refused }) += 1;
        }
        let known = client.check(check(&["user", "alex"])).await.expect("an answer").into_inner();
        assert_eq!(short(&known), (part < 9, 10, 8_u64.saturating_sub(part as u64)), "after {part}");
    }
    assert_eq!((allowed, refused), (MOST - 1, 20_000 - (MOST - 1)));
    assert_eq!(server.metric("weir_keys"), MOST as f64);
}
