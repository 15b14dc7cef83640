//! The HTTP port as a service lives and ends.

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Server, eventually, http, http::Client, server::Setup};

const POLICY: &str = "schema: { '*': { limits: [9, 1, 86400] } }";

#[test]
fn healthcheck_answers_like_envoys_rate_limit_service() {
    let mut server = Setup::new().env("WEIR_SHUTDOWN__DELAY", "60s").policy(POLICY).start();
    assert_eq!(server.get("/healthcheck"), (200, "OK".to_owned()));
    server.signal(Signal::TERM);
    eventually("it is not ready", || (server.get("/healthcheck") == (500, String::new())).then_some(()));
    assert_eq!(server.get("/readyz").0, 503);
    let answer = Client::connect(&server.http).expect("a connection").post("/v1/check", &json!({ "key": ["a"] }));
    assert_eq!(answer.status, 200, "calls are still served");
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_end(), 4);
}

#[test]
fn in_flight_checks_are_answered_during_shutdown() {
    let mut server = Server::with_policy(POLICY);
    let mut client = Client::connect(&server.http).expect("a connection");
    assert_eq!(client.post("/v1/check", &json!({ "key": ["a"] })).status, 200);
    let mut idle = Client::connect(&server.http).expect("a connection");
    assert_eq!(idle.post("/v1/check", &json!({ "key": ["a"] })).status, 200);
    let body = json!({ "key": ["a"] }).to_string();
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
fn checks_are_served_over_a_unix_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = format!("unix:{}", dir.path().join("http").display());
    let server = Setup::new().env("WEIR_HTTP__LISTEN", &path).env("WEIR_HTTP__WORKERS", "1").policy(POLICY).start();
    let answer = Client::connect(&server.http).expect("a connection").post("/v1/check", &json!({ "key": ["a"] }));
    assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!("9")));
    assert_eq!(http::get(&server.http, "/healthz").expect("a page").0, 200);
}
