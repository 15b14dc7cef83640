//! Spans at a collector: contents, sampling, and an unreachable collector.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc,
    time::Duration,
};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use tokio::time::timeout;
use tonic::{Code, Request};
use weir::proto::{CheckBatchRequest, CheckRequest, ResetRequest};
use weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_test_redis::{Options, Server as Redis, free_port};

use crate::support::{
    Server,
    collector::{Collector, attributes},
    envoy, eventually, http,
    pki::{Authority, Leaf},
    requests::{check, gcra, reset, with_limits},
    server::Setup,
};

const POLICY: &str = "domain: api\nschema: { user: { children: { '*': { limits: [{ gcra: { burst: 0, count: 1, period: 1d }, name: \
                      per-user }] } } } }";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
/// Timeout of calls that the store does not answer: enough for the server to ask it.
const ENOUGH_TO_ASK: Duration = Duration::from_millis(500);
/// The key of the checks, which must not appear in spans.
const PRIVATE: &str = "joan.d4rc";

fn server(collector: &Collector, ratio: &str) -> Server {
    let setup = Setup::new().policy(POLICY).env("WEIR_TRACING__OTLP_ENDPOINT", &collector.endpoint);
    setup.env("WEIR_TRACING__SERVICE_NAME", "edge").env("WEIR_TRACING__SAMPLE_RATIO", ratio).start()
}

/// Makes a request with a parent span and this sampling flag.
fn traced<T>(message: T, flag: &str) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{TRACE}-{PARENT}-{flag}");
    request.metadata_mut().insert("traceparent", parent.parse().expect("a value"));
    request.metadata_mut().insert("tracestate", "vendor=1".parse().expect("a value"));
    request
}

fn api(request: CheckRequest) -> CheckRequest {
    CheckRequest { domain: "api".to_owned(), ..request }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes_of<'a>(expected: &[(&'a str, &str)]) -> BTreeMap<&'a str, String> {
    expected.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
}

/// Sends checks by every surface, each in the caller's trace.
async fn ask_everywhere(server: &Server) {
    let mut client = server.client().await;
    let key = ["user", PRIVATE];
    let one = || api(check(&key));
    assert!(client.check(traced(one(), "01")).await.expect("an answer").into_inner().allowed);
    assert!(!client.check(traced(one(), "01")).await.expect("an answer").into_inner().allowed);
    let stranger = CheckRequest { domain: PRIVATE.to_owned(), ..check(&key) };
    client.check(traced(stranger, "01")).await.expect_err("there is no such domain");
    let own = with_limits(one(), vec![weir::proto::Limit { name: PRIVATE.to_owned(), ..gcra(9, 1, 60) }]);
    client.check(traced(own, "01")).await.expect("an answer");
    let batch = CheckBatchRequest { checks: vec![one(), api(check(&["elsewhere"])), api(check(&[""; 1]))] };
    client.check_batch(traced(batch, "01")).await.expect("answers");
    let stream = traced(futures_util::stream::iter(vec![one(); 2]), "01");
    let mut answers = client.check_stream(stream).await.expect("a stream").into_inner();
    while answers.message().await.expect("an answer").is_some() {}
    let reset = ResetRequest { domain: "api".to_owned(), ..reset(&key, false) };
    client.reset(traced(reset, "01")).await.expect("an answer");
    let descriptors = vec![envoy::descriptor(&["user", PRIVATE], 2)];
    let request = RateLimitRequest { domain: "api".to_owned(), descriptors, hits_addend: 0 };
    envoy::ask(server.channel().await, traced(request, "01")).await.expect("an answer");
    let mut client = http::Client::connect(&server.http).expect("it accepts connections");
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let body = serde_json::json!({ "domain": "api", "key": [PRIVATE] }).to_string();
    let answer = client.ask("POST /v1/check", &[("traceparent", &parent)], body.as_bytes()).expect("it answers");
    assert_eq!(answer.status, 200);
}

fn rpc<'a>(method: &'a str, code: &'a str) -> Vec<(&'static str, &'a str)> {
    let all = [("rpc.system", "grpc"), ("rpc.service", "weir.v1.RateLimiter"), ("rpc.method", method)];
    all.into_iter().chain([("rpc.grpc.status_code", code)]).collect()
}

fn assert_in_the_callers_trace(span: &Span) {
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()), "{span:?}");
    assert!(span.span_id.len() == 8 && span.span_id != span.parent_span_id, "{span:?}");
    assert_eq!((span.kind, span.trace_state.as_str()), (SpanKind::Server as i32, "vendor=1"), "{span:?}");
    assert!(span.flags & 1 == 1 && span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
    assert_eq!(span.status, None, "no fault of ours: {span:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_api_has_spans_in_the_clients_trace_without_request_values() {
    let collector = Collector::start();
    let server = server(&collector, "0");
    ask_everywhere(&server).await;
    let spans = collector.wait_for_spans(9);
    assert_eq!(spans.len(), 9, "{spans:#?}");
    spans.iter().filter(|span| !span.name.starts_with("POST")).for_each(assert_in_the_callers_trace);

    let decided = |outcome, limit| {
        vec![("weir.domain", "api"), ("weir.outcome", outcome), ("weir.limit", limit), ("weir.degraded", "false")]
    };
    let many = |outcome, checks, limited, failed| {
        let counts = [("weir.checks", checks), ("weir.checks.limited", limited), ("weir.checks.failed", failed)];
        [vec![("weir.domain", "api"), ("weir.outcome", outcome), ("weir.degraded", "false")], counts.to_vec()].concat()
    };
    let other = [("weir.domain", "other"), ("weir.outcome", "error"), ("weir.degraded", "false")];
    let mut batch = many("limited", "3", "1", "1");
    // One check of the batch cannot be decoded, so its domain is unknown.
    batch.remove(0);
    let envoy = [("rpc.system", "grpc"), ("rpc.service", "envoy.service.ratelimit.v3.RateLimitService")];
    let envoy = [&envoy[..], &[("rpc.method", "ShouldRateLimit"), ("rpc.grpc.status_code", "0")]].concat();
    let page = [("http.request.method", "POST"), ("http.route", "/v1/check"), ("url.path", "/v1/check")];
    let page = [&page[..], &[("http.response.status_code", "200"), ("weir.domain", "api")]].concat();
    let expected = [
        [rpc("Check", "0"), decided("allowed", "per-user")].concat(),
        [rpc("Check", "0"), decided("limited", "per-user")].concat(),
        [rpc("Check", "5"), other.to_vec()].concat(),
        [rpc("Check", "0"), decided("allowed", "other")].concat(),
        [rpc("CheckBatch", "0"), batch].concat(),
        [rpc("CheckStream", "0"), many("limited", "2", "2", "0")].concat(),
        [rpc("Reset", "0"), vec![("weir.domain", "api")]].concat(),
        [envoy, decided("limited", "per-user")].concat(),
        [page, vec![("weir.outcome", "allowed"), ("weir.degraded", "false")]].concat(),
    ];
    for (span, expected) in spans.iter().zip(&expected) {
        assert_eq!(attributes(&span.attributes), attributes_of(expected), "{}", span.name);
    }
    let requests = collector.requests();
    let resource = requests[0].resource_spans[0].resource.as_ref().expect("a resource");
    let resource = attributes(&resource.attributes);
    assert_eq!(
        (resource["service.name"].as_str(), resource["service.version"].as_str()),
        ("edge", env!("CARGO_PKG_VERSION"))
    );
    let all = format!("{requests:?}");
    assert!(!all.contains(PRIVATE), "{all}");
    server.wait_for_metric("weir_trace_spans_total{result=\"exported\"}", 9.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parent_sampling_decision_overrides_the_ratio() {
    let collector = Collector::start();
    for (ratio, expected) in [("0.0", [PARENT].as_slice()), ("1", &["", PARENT])] {
        let mut server = server(&collector, ratio);
        let before = collector.spans().len();
        let mut client = server.client().await;
        for request in
            [Request::new(api(check(&["a"]))), traced(api(check(&["a"])), "00"), traced(api(check(&["a"])), "01")]
        {
            client.check(request).await.expect("an answer");
        }
        // Pending spans are exported at shutdown.
        server.stop();
        let parents: Vec<_> = collector.spans()[before..].iter().map(|span| hex(&span.parent_span_id)).collect();
        assert_eq!(parents, expected, "ratio {ratio}");
    }
}

#[test]
fn an_unreachable_collector_loses_spans_but_fails_no_checks() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let setup = Setup::new().policy(POLICY).env("WEIR_TRACING__OTLP_ENDPOINT", &endpoint);
    let mut server = setup.env("WEIR_TRACING__MAX_QUEUE", "4").start();
    let lost = |result| server.metric(&format!("weir_trace_spans_total{{result=\"{result}\"}}"));
    let mut client = http::Client::connect(&server.http).expect("it accepts connections");
    // Exports pause after each failure, and the queue is soon full.
    eventually("spans are dropped", || {
        for _ in 0..20 {
            let answer = client.post("/v1/check", &serde_json::json!({ "domain": "api", "key": ["a"] }));
            assert_eq!(answer.status, 200);
        }
        (lost("dropped") > 0.0).then_some(())
    });
    server.wait_for_log("the collector does not accept spans; they are lost until it does");
    assert!(lost("failed") > 0.0 && lost("exported") == 0.0);
    server.stop();
}

#[test]
fn the_collector_certificate_is_verified_by_the_configured_ca() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let collector = Collector::encrypted(&ours.sign(Leaf::host("localhost")));
    let traced = |authority: &Authority| {
        let setup = Setup::new().policy(POLICY).env("WEIR_TRACING__OTLP_ENDPOINT", &collector.endpoint);
        let server = setup.file("WEIR_TRACING__CA", "ca.pem", &authority.pem).start();
        assert_eq!(server.run(&["check", "user", "alex", "--domain", "api"]).code, 0);
        server
    };
    let server = traced(&theirs);
    server.wait_for_metric("weir_trace_spans_total{result=\"failed\"}", 1.0);
    assert_eq!(collector.spans(), []);
    let server = traced(&ours);
    server.wait_for_metric("weir_trace_spans_total{result=\"exported\"}", 1.0);
    assert_eq!(collector.wait_for_spans(1)[0].name, "weir.v1.RateLimiter/Check");
}

#[test]
fn spans_are_sent_over_http_where_that_is_configured() {
    let ours = Authority::new("ours");
    for collector in [Collector::start(), Collector::encrypted(&ours.sign(Leaf::host("localhost")))] {
        let setup = Setup::new().policy(POLICY).env("WEIR_TRACING__OTLP_ENDPOINT", &collector.endpoint);
        let setup = setup.env("WEIR_TRACING__PROTOCOL", "http");
        let is_encrypted = collector.endpoint.starts_with("https");
        let setup = if is_encrypted { setup.file("WEIR_TRACING__CA", "ca.pem", &ours.pem) } else { setup };
        let server = setup.start();
        for count in 1..=2 {
            let user = count.to_string();
            assert_eq!(server.run(&["check", "user", &user, "--domain", "api"]).code, 0);
            server.wait_for_metric("weir_trace_spans_total{result=\"exported\"}", f64::from(count));
        }
        assert_eq!(collector.spans()[1].name, "weir.v1.RateLimiter/Check");
    }
    let collector = Collector::start();
    let setup = Setup::new().policy(POLICY).env("WEIR_TRACING__PROTOCOL", "http");
    let server = setup.env("WEIR_TRACING__OTLP_ENDPOINT", &format!("{}/elsewhere", collector.endpoint)).start();
    assert_eq!(server.run(&["check", "user", "alex", "--domain", "api"]).code, 0);
    server.wait_for_metric("weir_trace_spans_total{result=\"failed\"}", 1.0);
}

#[test]
fn failed_requests_over_http_are_logged_with_their_cause() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let setup = Setup::new().policy(POLICY).env("WEIR_TRACING__PROTOCOL", "http");
    let server = setup.env("WEIR_TRACING__OTLP_ENDPOINT", &endpoint).start();
    assert_eq!(server.run(&["check", "user", "alex", "--domain", "api"]).code, 0);
    let line = server.wait_for_log("a request to the collector failed");
    assert!(line["error"].as_str().expect("a cause").contains("refused"), "{line}");
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let collector = Collector::encrypted(&theirs.sign(Leaf::host("localhost")));
    let setup =
        Setup::new().policy(POLICY).env("WEIR_TRACING__PROTOCOL", "http").file("WEIR_TRACING__CA", "ca.pem", &ours.pem);
    let server = setup.env("WEIR_TRACING__OTLP_ENDPOINT", &collector.endpoint).start();
    assert_eq!(server.run(&["check", "user", "alex", "--domain", "api"]).code, 0);
    let line = server.wait_for_log("a request to the collector failed");
    assert!(line["error"].as_str().expect("a cause").ends_with("tracing.ca names the CA bundle"), "{line}");
}

/// The collector answers with more than the service reads.
#[test]
fn an_accepted_batch_is_sent_once_however_long_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let (requests, taken) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = (requests.send(()), stream.read(&mut [0; 1 << 16]));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
            let _ = stream.write_all(&[b'a'; 100_000]);
        }
    });
    let setup = Setup::new().policy(POLICY).env("WEIR_TRACING__PROTOCOL", "http");
    let mut server = setup.env("WEIR_TRACING__OTLP_ENDPOINT", &endpoint).start();
    assert_eq!(server.run(&["check", "user", "alex", "--domain", "api"]).code, 0);
    server.wait_for_metric("weir_trace_spans_total{result=\"exported\"}", 1.0);
    server.stop();
    taken.recv_timeout(Duration::from_secs(1)).expect("the batch");
    assert!(taken.try_recv().is_err(), "it is not sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_calls_are_child_spans() {
    let collector = Collector::start();
    let mut redis = Redis::start(Options::port());
    let policy = "on_store_failure: error\nschema: { '*': { limits: [9, 1, 86400] } }";
    let setup = Setup::new().policy(policy).shared(&redis).env("WEIR_TRACING__OTLP_ENDPOINT", &collector.endpoint);
    let server = setup.start();
    let mut client = server.client().await;
    client.check(traced(check(&["a"]), "01")).await.expect("an answer");
    let spans = collector.wait_for_spans(2);
    let (request, store) = (&spans[0], &spans[1]);
    assert_eq!((store.name.as_str(), store.kind, &store.status), ("redis", SpanKind::Client as i32, &None));
    assert_eq!((&store.trace_id, &store.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!(attributes(&store.attributes), attributes_of(&[("db.system.name", "redis")]));
    assert!(request.start_time_unix_nano <= store.start_time_unix_nano, "{spans:?}");
    assert!(store.end_time_unix_nano <= request.end_time_unix_nano, "{spans:?}");

    redis.kill();
    let status = client.check(traced(check(&["a"]), "01")).await.expect_err("there is no store");
    assert_eq!(status.code(), Code::Unavailable);
    for span in &collector.wait_for_spans(4)[2..] {
        assert_eq!(span.status.as_ref().map(|status| status.code), Some(StatusCode::Error as i32), "{span:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_end_before_the_store_answers_have_its_child_span() {
    let collector = Collector::start();
    let redis = Redis::start(Options::port());
    let setup = Setup::new().policy("schema: { '*': { limits: [9, 1, 86400] } }").shared(&redis);
    let server = setup.env("WEIR_TRACING__OTLP_ENDPOINT", &collector.endpoint).start();
    let mut client = server.client().await;
    client.check(traced(check(&["a"]), "00")).await.expect("an answer");
    redis.pause();
    let mut timed = traced(check(&["a"]), "01");
    timed.set_timeout(ENOUGH_TO_ASK);
    client.check(timed).await.expect_err("the store does not answer");
    let hung_up = timeout(ENOUGH_TO_ASK, client.check(traced(check(&["a"]), "01"))).await;
    assert!(hung_up.is_err(), "{hung_up:?}");
    let spans = collector.wait_for_spans(4);
    redis.resume();
    for pair in spans.chunks(2) {
        let (request, store) = (&pair[0], &pair[1]);
        assert_eq!((&*request.name, &*store.name), ("weir.v1.RateLimiter/Check", "redis"));
        assert_eq!(store.parent_span_id, request.span_id);
        assert_eq!(store.status.as_ref().map(|status| status.code), Some(StatusCode::Error as i32), "{store:?}");
        let took = Duration::from_nanos(store.end_time_unix_nano - store.start_time_unix_nano);
        assert!(took > ENOUGH_TO_ASK / 5, "{took:?}");
    }
}
