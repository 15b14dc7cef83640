//! Request IDs in the log.

use serde_json::{Value, json};
use tonic::{Code, Request};
use weir::proto::{CheckRequest, ResetRequest};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{
    Server, eventually, http,
    requests::{check, reset},
    server::Setup,
};

const POLICY: &str =
    "domain: api\nschema: { user: { limits: [{ gcra: { burst: 0, count: 1, period: 1d }, name: per-user }] } }";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PRIVATE: &str = "joan.d4rc";

fn with_id<T>(message: T, id: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-request-id", id.parse().expect("a value"));
    let parent = format!("00-{TRACE}-b7ad6b7169203331-00");
    request.metadata_mut().insert("traceparent", parent.parse().expect("a value"));
    request
}

fn api<S: ToString>(key: &[S]) -> CheckRequest {
    CheckRequest { domain: "api".to_owned(), ..check(key) }
}

/// Waits for the access log line of the `count`th request.
fn line(server: &Server, count: usize) -> Value {
    eventually(&format!("{count} lines"), || server.log_lines("answered").into_iter().nth(count - 1))
}

#[tokio::test]
async fn debug_access_logs_have_every_request_and_no_keys() {
    let server = Setup::new().policy(POLICY).env("WEIR_LOG__LEVEL", "weir=debug,info").start();
    let mut client = server.client().await;
    client.check(with_id(api(&["user", PRIVATE]), "id-1")).await.expect("an answer");
    let first = line(&server, 1);
    for (field, expected) in [
        ("target", json!("weir::access")),
        ("level", json!("DEBUG")),
        ("call", json!("weir.v1.RateLimiter/Check")),
        ("status", json!("OK")),
        ("outcome", json!("allowed")),
        ("domain", json!("api")),
        ("limit", json!("per-user")),
        ("checks", json!(1)),
        ("degraded", json!(false)),
        ("request_id", json!("id-1")),
        ("trace_id", json!(TRACE)),
    ] {
        assert_eq!(first[field], expected, "{field} in {first}");
    }
    assert!(first["duration_us"].is_u64(), "{first}");

    // An invalid ID is replaced with a new one, which a failed call returns.
    let status = client.check(with_id(api(&[""; 1]), "two words")).await.expect_err("no key");
    let second = line(&server, 2);
    assert_eq!((&second["status"], &second["outcome"]), (&json!("INVALID_ARGUMENT"), &json!("error")), "{second}");
    let made = status.metadata().get("x-request-id").expect("an id").to_str().expect("a text");
    assert!(second["request_id"] == made && made.len() == 32, "{second}");
    let cause = server.wait_for_log("the request has no decision");
    assert_eq!((&cause["error"], &cause["request_id"]), (&json!("segment 0 is empty"), &json!(made)), "{cause}");

    let mut client = http::Client::connect(&server.http).expect("it accepts connections");
    let body = json!({ "domain": "api", "key": ["user", PRIVATE] }).to_string();
    let refused = client.ask("POST /v1/check", &[("x-request-id", "id-3")], body.as_bytes()).expect("it answers");
    assert_eq!((refused.status, refused.header("x-request-id")), (429, Some("id-3")));
    let third = line(&server, 3);
    assert_eq!((&third["call"], &third["status"]), (&json!("POST /v1/check"), &json!("429")), "{third}");
    assert_eq!((&third["outcome"], &third["request_id"]), (&json!("limited"), &json!("id-3")), "{third}");
    let body = json!({ "domain": "nowhere", "descriptors": [{ "entries": [{ "key": PRIVATE }] }] }).to_string();
    assert_eq!(client.ask("POST /json", &[], body.as_bytes()).expect("it answers").status, 200);
    assert_eq!(server.wait_for_log("no policy defines the domain")["domain"], "nowhere");
    let log = server.log();
    assert!(!log.iter().any(|line| line.contains(PRIVATE)), "{log:#?}");
}

#[tokio::test]
async fn only_failed_responses_carry_the_request_id() {
    let server = Setup::new().policy(POLICY).start();
    let mut client = server.client().await;
    let answer = client.check(with_id(api(&["a"]), "id-1")).await.expect("an answer");
    assert_eq!(answer.metadata().get("x-request-id"), None);
    let returned_id = |status: &tonic::Status| {
        status.metadata().get("x-request-id").map(|id| id.to_str().expect("a text").to_owned())
    };
    let failed = client.check(with_id(check(&["a"]), "id-2")).await.expect_err("there is no such domain");
    assert_eq!((failed.code(), returned_id(&failed).as_deref()), (Code::NotFound, Some("id-2")));
    let failed = client.check(check(&["a"])).await.expect_err("there is no such domain");
    assert_eq!(returned_id(&failed), None, "no line of the log is about it, so there is nothing to find");
    let stream = with_id(futures_util::stream::iter([api(&["x".repeat(2 << 20)])]), "id-3");
    let failed = client.check_stream(stream).await.expect("a stream").into_inner().message().await;
    assert_eq!(returned_id(&failed.expect_err("it is too long")).as_deref(), Some("id-3"));

    let mut client = http::Client::connect(&server.http).expect("it accepts connections");
    for (request, body, status, id) in [
        ("POST /v1/check", "{", 400, Some("id-4")),
        ("GET /v1/check", "", 405, Some("id-4")),
        ("GET /nowhere", "", 404, Some("id-4")),
        ("POST /v1/check", "{\"domain\": \"api\", \"key\": [\"a\"]}", 200, None),
    ] {
        let answer = client.ask(request, &[("x-request-id", "id-4")], body.as_bytes()).expect("it answers");
        assert_eq!((answer.status, answer.header("x-request-id")), (status, id), "{request} {body}");
    }
}

#[tokio::test]
async fn store_failures_are_logged_with_the_request_id() {
    let redis = Redis::start(Options::socket());
    let policy = "on_store_failure: error\nschema: { '*': { limits: [9, 1, 1] } }";
    let setup = Setup::new().policy(policy).shared(&redis);
    let server = setup.env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "1s").start();
    let mut client = server.client().await;
    client.check(with_id(check(&["a"]), "id-1")).await.expect("an answer");
    redis.pause();
    let failed = client.check(with_id(check(&["a"]), "id-2")).await.expect_err("there is no store");
    redis.resume();
    assert_eq!(failed.code(), Code::Unavailable);
    assert_eq!(failed.metadata().get("x-request-id").map(|id| id.as_bytes()), Some(&b"id-2"[..]));
    let warning = "the shared store did not answer a request; such warnings come once a second at most";
    let line = server.wait_for_log(warning);
    assert_eq!((&line["request_id"], &line["trace_id"]), (&json!("id-2"), &json!(TRACE)), "{line}");
}

/// Without spans, a shared store or the level debug, so checks have no request context.
#[tokio::test]
async fn audit_lines_have_the_request_id() {
    let server = Setup::new().policy(POLICY).start();
    let mut client = server.client().await;
    client
        .reset(with_id(ResetRequest { domain: "api".to_owned(), ..reset(&["a"], false) }, "id-1"))
        .await
        .expect("reset");
    let line = server.wait_for_log("reset");
    assert_eq!((&line["request_id"], &line["trace_id"]), (&json!("id-1"), &json!(TRACE)), "{line}");

    let mut client = http::Client::connect(&server.http).expect("it accepts connections");
    let mut post = |path: &str, id: &str, body: Value| {
        let headers: &[_] = if id.is_empty() { &[] } else { &[("x-request-id", id)] };
        let answer = client.ask(&format!("POST {path}"), headers, body.to_string().as_bytes()).expect("it answers");
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let keys = json!({ "domain": "api", "key": ["a"] });
    post(
        "/v1/admin/set_override",
        "id-2",
        json!({ "override": { "domain": "api", "key": ["a"], "ban": true, "reason": "a test" } }),
    );
    assert_eq!(server.wait_for_log("override set")["request_id"], "id-2");
    post("/v1/admin/end_override", "id-3", keys.clone());
    assert_eq!(server.wait_for_log("override ended")["request_id"], "id-3");
    post("/v1/reset", "", keys);
    let second = eventually("the second reset", || server.log_lines("reset").into_iter().nth(1));
    assert_eq!(second["request_id"].as_str().map(str::len), Some(32), "one is made: {second}");
}

#[tokio::test]
async fn authentication_failures_are_logged_with_the_request_id() {
    let setup = Setup::new().policy(POLICY).credentials("callers: {}").env("WEIR_LOG__LEVEL", "weir=debug,info");
    let server = setup.start();
    let failed =
        server.client().await.check(with_id(api(&["a"]), "id-9")).await.expect_err("the client is not authenticated");
    assert_eq!(failed.code(), Code::Unauthenticated);
    let refused = server.wait_for_log("call rejected");
    assert_eq!((&refused["request_id"], &refused["trace_id"]), (&json!("id-9"), &json!(TRACE)), "{refused}");
    assert_eq!(failed.metadata().get("x-request-id").map(|id| id.as_bytes()), Some(&b"id-9"[..]));
}
