//! Invalid HTTP requests: each gets an error, and the service keeps running.

use std::future::poll_fn;

use hyper::{Method, Request};
use serde_json::json;

use crate::support::{
    Folder, Server, TIMEOUT,
    http::{Answer, Client},
    server::Setup,
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";
const JSON: (&str, &str) = ("content-type", "application/json");
/// Time for which the service continues reading after it has answered and closed (`weir_server`'s `linger`).
const LINGERS: std::time::Duration = std::time::Duration::from_secs(1);
const PATHS: [&str; 9] = [
    "/v1/check",
    "/v1/check_batch",
    "/v1/reserve",
    "/v1/commit",
    "/v1/cancel",
    "/v1/extend",
    "/v1/reset",
    "/v1/admin/list_replicas",
    "/v1/admin/list_keys",
];

fn client(server: &Server) -> Client {
    Client::connect(&server.http).expect("it accepts connections")
}

/// Asserts that an answer is a problem document of this status and field. Returns its detail.
fn problem(answer: &Answer, status: u16, field: Option<&str>) -> String {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (status, Some("application/problem+json")),
        "{answer:?}"
    );
    let problem = answer.json();
    assert_eq!((&problem["type"], &problem["status"]), (&json!("about:blank"), &json!(status)), "{answer:?}");
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{answer:?}");
    assert_eq!(problem["error"]["field"].as_str(), field, "{answer:?}");
    problem["detail"].as_str().expect("a sentence").to_owned()
}

#[test]
fn other_methods_than_post_get_405_and_bodies_that_are_not_json_415() {
    let server = Server::with_policy(POLICY);
    for path in PATHS {
        for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
            let answer = client(&server).ask(&format!("{method} {path}"), &[JSON], b"{}").expect("an answer");
            assert_eq!(problem(&answer, 405, None), "this path requires POST");
            assert_eq!(answer.header("allow"), Some("POST"), "{method}");
        }
    }
    for path in ["/v1/checks", "/v1/check/", "/v1/check/a", "/v1/admin/list_all"] {
        problem(&client(&server).ask(&format!("POST {path}"), &[JSON], b"{}").expect("an answer"), 404, None);
    }

    let mut kept = client(&server);
    let body = br#"{"key": ["user", "alex"], "cost": 0}"#;
    for kind in ["application/json", "application/json;charset=utf-8", "APPLICATION/JSON", "application/x+json"] {
        let answer = kept.ask("POST /v1/check", &[("content-type", kind)], body).expect("an answer");
        assert_eq!(answer.status, 200, "{kind}");
    }
    assert_eq!(kept.ask("POST /v1/check", &[], body).expect("an answer").status, 200);
    for path in PATHS {
        for header in [
            ("content-type", "application/x-www-form-urlencoded"),
            ("content-type", "text/plain"),
            ("content-type", ""),
            ("content-encoding", "gzip"),
        ] {
            problem(&client(&server).ask(&format!("POST {path}"), &[header], body).expect("an answer"), 415, None);
        }
    }
}

#[test]
fn an_oversized_body_gets_413() {
    let server = Setup::new().env("WEIR_GRPC__MAX_MESSAGE_BYTES", "2048").policy(POLICY).start();
    let check = |length: usize| {
        let body = json!({ "key": ["user", "alex"], "cost": 0 }).to_string();
        format!("{body:length$}").into_bytes()
    };
    assert_eq!(client(&server).ask("POST /v1/check", &[JSON], &check(2_048)).expect("an answer").status, 200);
    for path in PATHS {
        let answer = client(&server).ask(&format!("POST {path}"), &[JSON], &check(2_049)).expect("an answer");
        assert_eq!(problem(&answer, 413, None), "a body must be at most 2048 bytes");
    }
    let counted = server.metric("weir_requests_rejected_total{listener=\"http\",reason=\"size\"}");
    assert_eq!(counted, PATHS.len() as f64);
    // Without a `content-length`.
    for (length, status) in [(2_000, 200), (2_049, 413)] {
        let mut chunked = client(&server);
        chunked.send("POST /v1/check", &[JSON, ("transfer-encoding", "chunked")], None, b"").expect("sent");
        for part in check(length).chunks(500) {
            chunked.send_more(&[format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat()).expect("sent");
        }
        // The service may have closed the connection already.
        let _ = chunked.send_more(b"0\r\n\r\n");
        assert_eq!(chunked.receive().expect("an answer").status, status);
    }
    // The announced length suffices: the server does not wait for the body.
    let mut announced = client(&server);
    announced.send("POST /v1/check", &[JSON], Some(1 << 40), b"{").expect("sent");
    assert_eq!(announced.receive().expect("an answer").status, 413);

    // A client that is still sending receives the answer.
    let (part, parts) = ([b' '; 64 << 10], 16);
    let mut slow = client(&server);
    let since = std::time::Instant::now();
    let mut sent = slow.send("POST /v1/check", &[JSON], Some(part.len() * parts), &part);
    for _ in 1..parts {
        // Gives the service time to notice that the body is too large.
        std::thread::sleep(std::time::Duration::from_millis(10));
        sent = sent.and_then(|()| slow.send_more(&part));
    }
    // Only a client that took longer is not waited for.
    assert!(sent.is_ok() || since.elapsed() >= LINGERS, "still taken: {sent:?}");
    assert_eq!(problem(&slow.receive().expect("an answer"), 413, None), "a body must be at most 2048 bytes");
}

#[test]
fn a_body_that_does_not_arrive_times_out_with_408() {
    let server = Server::with_policy(POLICY);
    let mut slow = client(&server);
    slow.send("POST /v1/check", &[JSON], Some(10), b"{").expect("sent");
    let since = std::time::Instant::now();
    let answer = slow.receive().expect("an answer");
    assert_eq!(problem(&answer, 408, None), "the body did not come within 10 s");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(since.elapsed() < TIMEOUT && slow.ends());
    assert_eq!(server.metric("weir_requests_rejected_total{listener=\"http\",reason=\"message\"}"), 1.0);
}

/// A client that reuses connections must not send its next request on a connection that the service closes.
#[test]
fn an_answer_to_an_unfinished_body_announces_the_close_and_others_do_not() {
    let small = || Setup::new().env("WEIR_GRPC__MAX_MESSAGE_BYTES", "2048").policy(POLICY);
    let (server, closed) = (small().start(), small().credentials("clients: {}").start());
    let (chunked, expect) = (("transfer-encoding", "chunked"), ("expect", "100-continue"));
    let large = b" ".repeat(1 << 20);
    let many_chunks = [&b"100000\r\n"[..], &large, b"\r\n"].concat().repeat(6);
    for (request, header, length, body, status) in [
        ("POST /v1/check", JSON, Some(3), &b"{}"[..], 401),
        ("POST /v1/check", expect, Some(2), b"", 401),
        ("POST /v1/check", JSON, Some(1 << 40), b"{", 413),
        ("POST /v1/check", chunked, None, &many_chunks, 413),
        ("POST /v1/check", chunked, None, b"x\r\n", 400),
        ("POST /v1/check", expect, Some(1 << 20), b"", 413),
        ("POST /v1/nowhere", expect, Some(2), b"", 404),
        ("PUT /v1/check", expect, Some(2), b"", 405),
        ("POST /nowhere", JSON, Some(3), b"{}", 404),
    ] {
        let mut client = client(if status == 401 { &closed } else { &server });
        // The service may have closed the connection already.
        let _ = client.send(request, &[header], length, body);
        let answer = client.receive().expect("an answer");
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{request} {header:?}");
        assert!(client.ends(), "{request} {header:?}");
    }
    let mut kept = client(&server);
    for (request, body, status) in [
        ("POST /v1/check", &large[..], 413),
        ("POST /v1/nowhere", b"{}", 404),
        ("PUT /v1/check", b"{}", 405),
        ("POST /v1/check", b"{", 400),
        ("POST /v1/check", br#"{"key": ["user", "alex"]}"#, 200),
    ] {
        let answer = kept.ask(request, &[], body).expect("an answer");
        assert_eq!((answer.status, answer.header("connection")), (status, None), "{request}");
    }
    let answer = client(&closed).ask("POST /v1/check", &[], b"{}").expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (401, None));
    let answer = kept.ask("GET /healthz", &[expect], b"").expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (200, None));
}

#[test]
fn json_errors_name_the_field() {
    let server = Server::with_policy(POLICY);
    let mut client = client(&server);
    let gcra = r#"{"key":["a"],"limitSpec":{"limits":[{"gcra":{"burst":1,"count":1,"period":"1s"}},{"#;
    for (path, body, field, expected) in [
        ("/v1/check", "", "", "the JSON cannot be read: EOF"),
        ("/v1/check", "{", "", "the JSON cannot be read: EOF"),
        ("/v1/check", r#"{"key": ["a"]} {}"#, "", "the JSON cannot be read: trailing characters"),
        ("/v1/check", r#"{"key": ["\ud800"]}"#, "", "the JSON cannot be read"),
        ("/v1/check", "[]", "", "the message must be an object"),
        ("/v1/check", "null", "", "the message must be an object"),
        ("/v1/check", r#"{"key": ["a"], "cots": 1}"#, "cots", "unknown field `cots`; did you mean `cost`?"),
        ("/v1/check", r#"{"key": ["a"], "": 1}"#, "", "unknown field"),
        ("/v1/check", r#"{"key": "a"}"#, "key", "must be a list"),
        ("/v1/check", r#"{"key": ["a", 5]}"#, "key[1]", "must be a string"),
        ("/v1/check", r#"{"key": ["a"], "cost": "many"}"#, "cost", "a whole number"),
        ("/v1/check", r#"{"key": ["a"], "cost": 1.5}"#, "cost", "a whole number"),
        ("/v1/check", r#"{"key": ["a"], "cost": 1e99}"#, "cost", "a whole number"),
        ("/v1/check", r#"{"key": ["a"], "maxWait": 5}"#, "max_wait", "a duration in seconds, such as \"1.5s\""),
        ("/v1/check", r#"{"key": ["a"], "max_wait": "5"}"#, "max_wait", "a duration"),
        ("/v1/check", r#"{"key": ["a"], "maxWait": "0.0000001s"}"#, "max_wait", "whole microseconds"),
        ("/v1/check", r#"{"key": ["a"], "maxWait": "9223372036854775807s"}"#, "max_wait", ""),
        ("/v1/check", r#"{"key": ["a"], "summaryOnly": 1}"#, "summary_only", "must be true or false"),
        ("/v1/check", r#"{"key": ["a"], "limitSpec": []}"#, "limit_spec", "must be an object"),
        ("/v1/check", r#"{"key": ["a"], "limitSpec": {"charge": "FREE"}}"#, "limit_spec.charge", "one of CHARGE_"),
        (
            "/v1/check",
            &format!(r#"{gcra}"gcra":{{"burst":-1}}}}]}}}}"#),
            "limit_spec.limits[1].gcra.burst",
            "a whole number from 0 to 2^64 - 1",
        ),
        (
            "/v1/check",
            &format!(r#"{gcra}"gcra":{{"bursts":1}}}}]}}}}"#),
            "limit_spec.limits[1].gcra.bursts",
            "unknown field `bursts`; did you mean `burst`?",
        ),
        (
            "/v1/check",
            &format!(r#"{gcra}"gcra":{{}},"fixedWindow":{{}}}}]}}}}"#),
            "limit_spec.limits[1]",
            "several fields",
        ),
        ("/v1/check", &format!(r#"{gcra}"depth":"x"}}]}}}}"#), "limit_spec.limits[1].depth", "a whole number"),
        ("/v1/check", r#"{"key": []}"#, "key", ""),
        ("/v1/check", r#"{"key": ["a", ""]}"#, "key[1]", ""),
        ("/v1/check_batch", "[]", "", "an object with the field `checks`"),
        ("/v1/check_batch", r#"{"check": []}"#, "check", "unknown field `check`; did you mean `checks`?"),
        ("/v1/check_batch", r#"{"checks": {}}"#, "checks", "a list of checks"),
        ("/v1/check_batch", r#"{"checks": [], "checks": []}"#, "checks", "duplicate field"),
        ("/v1/check_batch", r#"{"checks": [{]}"#, "", "the JSON cannot be read"),
        ("/v1/reset", r#"{"key": ["a"], "subtree": "yes"}"#, "subtree", "must be true or false"),
        ("/v1/reset", r#"{"key": []}"#, "key", ""),
    ] {
        let answer = client.ask(&format!("POST {path}"), &[JSON], body.as_bytes()).expect("an answer");
        let detail = problem(&answer, 400, Some(field));
        assert!(detail.contains(expected), "{detail} for {body}");
        assert_eq!(answer.json()["error"]["code"], 3);
    }
    let answer = client.post("/v1/check", &json!({ "key": ["user", "alex"] }));
    assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!("9")));
    // An unknown domain differs from an unknown path.
    let answer = client.post("/v1/check", &json!({ "domain": "nowhere", "key": ["a"] }));
    assert_eq!(problem(&answer, 404, Some("domain")), "domain: no policy defines the domain `nowhere`");
}

#[test]
fn deep_and_large_json_and_batches_above_a_thousand_get_400() {
    let server = Server::with_policy(POLICY);
    let mut client = client(&server);
    let deep = "[".repeat(500_000);
    let many = vec![json!(""); 300_000];
    for (path, body) in [
        ("/v1/check", deep.clone()),
        ("/v1/check", format!("{{\"key\": {deep}")),
        ("/v1/check", format!("{{\"x\": {}", "{\"x\":".repeat(150_000))),
        ("/v1/check", json!({ "key": many }).to_string()),
        ("/v1/reset", json!({ "key": many }).to_string()),
        ("/v1/check_batch", format!("{{\"checks\": {deep}")),
        ("/v1/check_batch", json!({ "checks": many }).to_string()),
    ] {
        let answer = client.ask(&format!("POST {path}"), &[JSON], body.as_bytes()).expect("an answer");
        assert_eq!(answer.status, 400, "{path} {answer:?}");
    }
    let long = "x".repeat(1_000_000);
    let answer = client.post("/v1/check", &json!({ "key": ["a"], long: 1 }));
    assert!(answer.status == 400 && answer.body.len() < 1_000, "{}", answer.body.len());
    let in_its_place = json!({ "checks": [{ "key": vec!["a"; 10_000] }, { "key": ["user", "alex"] }] });
    let answer = client.post("/v1/check_batch", &in_its_place).json();
    assert_eq!((&answer["results"][0]["error"]["code"], &answer["results"][1]["remaining"]), (&json!(3), &json!("9")));

    let batch = |count| json!({ "checks": vec![json!({ "key": ["free"] }); count] });
    let answer = client.post("/v1/check_batch", &batch(1_001));
    assert_eq!(problem(&answer, 400, Some("checks")), "checks: at most 1000 checks in a batch");
    assert_eq!(client.post("/v1/check_batch", &batch(1_000)).json()["results"].as_array().map(Vec::len), Some(1_000));
    for none in [json!({}), json!({ "checks": null }), batch(0)] {
        assert_eq!(client.post("/v1/check_batch", &none).json(), json!({ "results": [] }));
    }
}

#[test]
fn on_store_failure_decides_while_the_store_is_unreachable() {
    let rules = [("error", 503), ("local", 200), ("deny", 429)];
    let policies = Folder::new();
    for (rule, _) in rules {
        policies.write(&format!("{rule}.yaml"), format!("domain: {rule}\non_store_failure: {rule}\n{POLICY}"));
    }
    let setup = Setup::new().env("WEIR_STORE__URL", "redis://127.0.0.1:1").limits(policies.path("").into());
    let server = setup.start();
    for (rule, status) in rules {
        let answer = client(&server).post("/v1/check", &json!({ "domain": rule, "key": ["user", "alex"] }));
        match status {
            503 => assert_eq!(problem(&answer, 503, Some("")), "the store does not answer"),
            _ => assert_eq!((answer.status, &answer.json()["degraded"]), (status, &json!(true)), "{answer:?}"),
        }
    }
}

/// Clients over HTTP/2, curl among them, may lose an answer that is followed by a reset of the stream.
#[tokio::test]
async fn requests_over_http2_that_are_rejected_unread_are_answered_without_a_reset() {
    const BYTES: usize = 1 << 20;
    let small = || Setup::new().env("WEIR_GRPC__MAX_MESSAGE_BYTES", "2048").policy(POLICY);
    let open = small().start();
    let closed = small().credentials("callers: {}").start();
    let (json, text, other) = (JSON, ("content-type", "text/plain"), ("sec-fetch-site", "cross-site"));
    for (server, method, path, header, status) in [
        (&open, Method::POST, "/v1/nowhere", json, 404),
        (&open, Method::PUT, "/v1/check", json, 405),
        (&open, Method::POST, "/v1/check", text, 415),
        (&open, Method::POST, "/v1/check", other, 403),
        (&open, Method::POST, "/v1/check", json, 413),
        (&closed, Method::POST, "/v1/check", json, 401),
    ] {
        let stream = tokio::net::TcpStream::connect(&server.http).await.expect("a connection");
        let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(format!("http://localhost{path}"));
        let request = request.header(header.0, header.1).body(()).expect("a request");
        let (answer, mut body) = client.send_request(request, false).expect("sent");
        let (mut left, started) = (BYTES, std::time::Instant::now());
        while left > 0 {
            body.reserve_capacity(left);
            let capacity = poll_fn(|cx| body.poll_capacity(cx)).await.and_then(Result::ok);
            // The service waits for a second for each part.
            let is_late = || started.elapsed() >= std::time::Duration::from_secs(1);
            let Some(capacity) = capacity else {
                assert!(is_late(), "{path} {status}: reset with {left} left");
                break;
            };
            left -= capacity;
            assert!(body.send_data(vec![b' '; capacity].into(), left == 0).is_ok() || is_late(), "{path} {status}");
        }
        if left > 0 {
            continue;
        }
        assert_eq!(answer.await.expect("an answer").status().as_u16(), status, "{path}");
    }
}
