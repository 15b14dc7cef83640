//! gRPC protocol details, as any client may use them: errors, deadlines and compression, tested without tonic's client.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use weir::{
    proto::{CheckBatchRequest, CheckRequest, CheckResponse, EndOverrideRequest, ResetRequest, ResetResponse},
    transport::calls::Call,
};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{
    Server,
    envoy::descriptor,
    eventually_async,
    plain::{Plain, framed},
    requests::{check, peek, reset, short},
    server::Setup,
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

fn message(message: &impl Message) -> Bytes {
    framed(&message.encode_to_vec(), false)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

fn gzipped(message: &impl Message) -> Bytes {
    framed(&gzip(&message.encode_to_vec()), true)
}

fn alex() -> CheckRequest {
    check(&["user", "alex"])
}

/// Returns the remaining units of `alex`.
async fn left(plain: &Plain) -> u64 {
    let answer: CheckResponse = plain.call(Call::Check.path(), &[], message(&peek(&["user", "alex"]))).await.message();
    answer.remaining
}

#[tokio::test]
async fn a_call_that_fails_early_gets_a_trailers_only_response() {
    const MOST: usize = 1_024;
    let server = Setup::new().policy(POLICY).env("WEIR_GRPC__MAX_MESSAGE_BYTES", &MOST.to_string()).start();
    let plain = Plain::connect(&server.grpc).await;
    let unknown = HealthCheckRequest { service: "other".to_owned() };
    let nowhere = CheckRequest { domain: "nowhere".to_owned(), ..alex() };
    let batch = CheckBatchRequest { checks: vec![CheckRequest::default(); 1_001] };
    let long = framed(&[0; 1_025], false);
    let rls = weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest::default();
    for (path, headers, body, code) in [
        (HEALTH_CHECK, &[][..], message(&unknown), Code::NotFound),
        (HEALTH_CHECK, &[], long.clone(), Code::OutOfRange),
        (Call::Check.path(), &[], message(&CheckRequest::default()), Code::InvalidArgument),
        (Call::Check.path(), &[], message(&nowhere), Code::NotFound),
        (Call::Check.path(), &[], long.clone(), Code::OutOfRange),
        (Call::Check.path(), &[], Bytes::new(), Code::Internal),
        (Call::Check.path(), &[], Bytes::from_static(b"\0\0\0\0\x05a"), Code::Internal),
        (Call::Check.path(), &[("grpc-encoding", "br")], message(&alex()), Code::Unimplemented),
        (Call::CheckBatch.path(), &[], message(&batch), Code::OutOfRange),
        (Call::CheckStream.path(), &[("grpc-encoding", "br")], message(&alex()), Code::Unimplemented),
        (Call::Reset.path(), &[], message(&ResetRequest::default()), Code::InvalidArgument),
        (Call::ShouldRateLimit.path(), &[], message(&rls), Code::InvalidArgument),
        ("/weir.v1.RateLimiter/Other", &[], message(&alex()), Code::Unimplemented),
        ("/", &[], message(&alex()), Code::Unimplemented),
    ] {
        let answer = plain.call(path, headers, body).await;
        assert_eq!(answer.code(), code, "{path}: {answer:?}");
        assert!(answer.is_head_alone && answer.body.is_empty() && answer.trailers.is_empty(), "{path}: {answer:?}");
        assert_eq!(answer.headers["content-type"], "application/grpc");
    }
    let too_large = || server.metric("weir_requests_rejected_total{listener=\"grpc\",reason=\"size\"}");
    assert_eq!(too_large(), 3.0);
    let answer = plain.call(Call::Check.path(), &[("grpc-encoding", "br")], message(&alex())).await;
    assert_eq!(answer.headers["grpc-accept-encoding"], "gzip,identity");
    // A successful call has its status in the trailers, and so has an error after the first message.
    let good = plain.call(Call::Check.path(), &[], message(&alex())).await;
    assert_eq!(
        (good.headers.get("grpc-status"), &good.trailers["grpc-status"]),
        (None, &"0".parse().expect("a value"))
    );
    let stream = plain.call(Call::CheckStream.path(), &[], [message(&alex()), long].concat().into()).await;
    assert_eq!((stream.headers.get("grpc-status"), stream.code()), (None, Code::OutOfRange));
    assert!(!stream.body.is_empty());
    assert_eq!(too_large(), 4.0);

    // The size limit applies after decompression.
    for (length, expected) in [(MOST, Code::NotFound), (MOST + 1, Code::ResourceExhausted)] {
        let request = CheckRequest { domain: "d".repeat(length - 15), ..alex() };
        assert_eq!(request.encoded_len(), length);
        assert!(gzipped(&request).len() < MOST);
        assert_eq!(
            plain.call(Call::Check.path(), &[("grpc-encoding", "gzip")], gzipped(&request)).await.code(),
            expected
        );
    }
    assert_eq!(too_large(), 5.0);
}

/// A page of another site can send these without a CORS preflight, even to a port of this machine.
#[tokio::test]
async fn calls_without_the_grpc_content_type_are_not_executed() {
    let server = Server::with_policy(POLICY);
    let plain = Plain::connect(&server.grpc).await;
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("multipart/form-data")] {
        assert_eq!(plain.status(Call::Check.path(), kind, message(&alex())).await, 415, "{kind:?}");
    }
    assert_eq!(plain.status(Call::Check.path(), Some("application/grpc+proto"), message(&alex())).await, 200);
    assert!(
        server
            .get("/metrics")
            .1
            .contains("weir_checks_total{domain=\"default\",transport=\"grpc\",outcome=\"allowed\"} 1\n")
    );
}

#[tokio::test]
async fn calls_end_at_their_deadline_and_are_not_executed_past_it() {
    let server = Server::with_policy(POLICY);
    let plain = Plain::connect(&server.grpc).await;
    let _: CheckResponse = plain.call(Call::Check.path(), &[], message(&alex())).await.message();
    let batch = CheckBatchRequest { checks: vec![alex(); 3] };
    let reset = reset(&alex().key, false);
    let envoy = weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest {
        domain: "other".to_owned(),
        descriptors: vec![descriptor(&["user", "alex"], 1)],
        ..Default::default()
    };
    for (path, body) in [
        (Call::Check.path(), message(&alex())),
        (Call::CheckBatch.path(), message(&batch)),
        (Call::Reset.path(), message(&reset)),
        (Call::ShouldRateLimit.path(), message(&envoy)),
    ] {
        let late = plain.call(path, &[("grpc-timeout", "0n"), ("x-request-id", "late-1")], body).await;
        assert_eq!((late.code(), late.is_head_alone), (Code::DeadlineExceeded, true), "{path}: {late:?}");
        assert_eq!(late.headers["x-request-id"], "late-1");
    }
    let late = plain.call(Call::CheckStream.path(), &[("grpc-timeout", "0n")], message(&alex())).await;
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!(left(&plain).await, 9, "nothing was charged or forgotten");
    assert_eq!(
        server.metric("weir_checks_total{domain=\"default\",transport=\"grpc_batch\",outcome=\"allowed\"}"),
        0.0
    );

    // A call without a message ends at its deadline.
    for (path, body) in
        [(Call::Check.path(), message(&alex())), (Call::Check.path(), Bytes::new()), (HEALTH_CHECK, Bytes::new())]
    {
        let late = plain.call_without_end(path, &[("grpc-timeout", "10m")], body).await;
        assert_eq!((late.code(), late.is_head_alone), (Code::DeadlineExceeded, true), "{late:?}");
    }
    assert_eq!(left(&plain).await, 9);

    // Distant or malformed deadlines do not affect a call.
    let timeouts = ["1H", "99999999H", "600S", "600000m", "", "0", "0x", "000000000n", "-1n"];
    for (timeout, left) in timeouts.into_iter().zip((0..10).rev()) {
        let answer =
            plain.call(Call::Check.path(), &[("grpc-timeout", timeout)], message(&check(&["user", "berta"]))).await;
        assert_eq!(short(&answer.message()), (true, 10, left), "{timeout}");
    }

    // Streams end at their deadline.
    let timeout = [("grpc-timeout", "300m")];
    let open = plain.call_without_end(Call::CheckStream.path(), &timeout, message(&alex())).await;
    let watch = plain.call(HEALTH_WATCH, &timeout, message(&HealthCheckRequest::default())).await;
    for ended in [open, watch] {
        assert_eq!((ended.code(), ended.headers.get("grpc-status")), (Code::DeadlineExceeded, None), "{ended:?}");
        assert!(!ended.body.is_empty(), "it was served until then");
    }
}

#[tokio::test]
async fn a_call_that_waits_for_the_store_ends_at_its_deadline() {
    let redis = Redis::start(Options::port());
    let patient = ("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "10s");
    let server = Setup::new().policy(POLICY).shared(&redis).env(patient.0, patient.1).start();
    let plain = Plain::connect(&server.grpc).await;
    assert_eq!(left(&plain).await, 10);
    redis.pause();
    let batch = CheckBatchRequest { checks: vec![alex(); 3] };
    for (path, body) in [(Call::Check.path(), message(&alex())), (Call::CheckBatch.path(), message(&batch))] {
        let late = plain.call(path, &[("grpc-timeout", "500m")], body).await;
        assert_eq!((late.code(), late.is_head_alone), (Code::DeadlineExceeded, true), "{late:?}");
    }
    let stream = plain.call(Call::CheckStream.path(), &[("grpc-timeout", "500m")], message(&alex())).await;
    assert_eq!((stream.code(), stream.body.len()), (Code::DeadlineExceeded, 0), "{stream:?}");
    let abandoned = || server.metric("weir_abandoned_checks_total{domain=\"default\"}");
    eventually_async("each check is counted", async || (abandoned() == 5.0).then_some(())).await;
    let reset = message(&ResetRequest { key: alex().key, ..ResetRequest::default() });
    let late = plain.call(Call::Reset.path(), &[("grpc-timeout", "500m")], reset).await;
    assert_eq!(late.code(), Code::DeadlineExceeded);
    let audited = |line: &String| line.contains("weir::audit") && line.contains("the call ended before the store");
    eventually_async("the reset is audited", async || server.log().iter().any(audited).then_some(())).await;
    let end = message(&EndOverrideRequest { key: alex().key, ..EndOverrideRequest::default() });
    let late = plain.call("/weir.v1.Admin/EndOverride", &[("grpc-timeout", "500m")], end).await;
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late:?}");
    let audited = |line: &String| line.contains("weir::audit") && line.contains("the override may change yet");
    eventually_async("the override is audited", async || server.log().iter().any(audited).then_some(())).await;
    redis.resume();
}

#[tokio::test]
async fn gzip_requests_are_decompressed() {
    let server = Server::with_policy(POLICY);
    let plain = Plain::connect(&server.grpc).await;
    let encoding = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip,identity")];
    let answer = plain.call(Call::Check.path(), &encoding, gzipped(&alex())).await;
    assert_eq!(short(&answer.message()), (true, 10, 9));
    assert_eq!(answer.headers.get("grpc-encoding"), None, "answers are short");
    let answer = plain.call(Call::Check.path(), &encoding, message(&alex())).await;
    assert_eq!(short(&answer.message()), (true, 10, 8), "a message of such a call need not be compressed");
    let both = [gzipped(&alex()), message(&alex()), gzipped(&alex())].concat();
    let answer = plain.call(Call::CheckStream.path(), &encoding, both.into()).await;
    assert_eq!(answer.code(), Code::Ok);
    assert_eq!(left(&plain).await, 5);
    let batch = CheckBatchRequest { checks: vec![alex(); 2] };
    assert_eq!(plain.call(Call::CheckBatch.path(), &encoding, gzipped(&batch)).await.code(), Code::Ok);
    let envoy = weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest {
        domain: "other".to_owned(),
        descriptors: vec![descriptor(&["user", "alex"], 1)],
        ..Default::default()
    };
    assert_eq!(plain.call(Call::ShouldRateLimit.path(), &encoding, gzipped(&envoy)).await.code(), Code::Ok);
    assert_eq!(left(&plain).await, 3);
    let reset = reset(&alex().key, false);
    let answer: ResetResponse = plain.call(Call::Reset.path(), &encoding, gzipped(&reset)).await.message();
    assert!(answer.existed);
    let health = plain.call(HEALTH_CHECK, &encoding, gzipped(&HealthCheckRequest::default())).await;
    assert_eq!(health.code(), Code::Ok);
    for (encoding, body) in [
        (&encoding[..], framed(b"this is not gzip", true)),
        (&[], gzipped(&alex())),
        (&[("grpc-encoding", "identity")], gzipped(&alex())),
    ] {
        assert_eq!(plain.call(Call::Check.path(), encoding, body).await.code(), Code::Internal, "{encoding:?}");
    }
}

#[tokio::test]
async fn a_decompression_bomb_is_not_fully_decompressed() {
    const BOMB: usize = 64 << 20;
    const CALLS: usize = 64;
    let server = Server::with_policy(POLICY);
    let plain = Plain::connect(&server.grpc).await;
    let bomb = framed(&gzip(&vec![0; BOMB]), true);
    let before = server.resident();
    for path in [Call::Check.path(), Call::CheckStream.path(), HEALTH_CHECK] {
        let calls = (0..CALLS).map(|_| plain.call(path, &[("grpc-encoding", "gzip")], bomb.clone()));
        for answer in futures_util::future::join_all(calls).await {
            assert_eq!((answer.code(), answer.body.len()), (Code::ResourceExhausted, 0), "{answer:?}");
        }
    }
    // Each call may use memory for a message of the maximum size, 1 MiB, once compressed and once decompressed.
    let grown = server.resident().saturating_sub(before);
    assert!(grown < CALLS * (2 << 20), "{CALLS} messages that become {BOMB} bytes each took {grown}");
    assert_eq!(left(&plain).await, 10);
}
