//! The controller of adaptive limits in `examples/adaptive`, with a stub of Prometheus.

use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{Router, http::Uri, routing::get};
use serde_json::json;

use crate::support::{Killed, Server, eventually, grpc_server::GrpcServer};

const POLICY: &str = "schema: { user: { limits: [{ token_bucket: { capacity: 1000, count: 1000, period: 1s } }] } }";

/// Starts a stub that answers every query with a thousandth of `millis`, or with no result if it is 0.
fn prometheus(millis: Arc<AtomicU64>) -> GrpcServer {
    let answer = async move |uri: Uri| {
        assert!(uri.query().is_some_and(|query| query.starts_with("query=p99")), "{uri}");
        let value = millis.load(Ordering::Relaxed) as f64 / 1_000.0;
        let result = if value > 0.0 { json!([{ "metric": {}, "value": [1, value.to_string()] }]) } else { json!([]) };
        json!({ "status": "success", "data": { "resultType": "vector", "result": result } }).to_string()
    };
    GrpcServer::start("127.0.0.1:0", None, Router::new().route("/api/v1/query", get(answer)).into())
}

/// Returns the current limit.
fn limit(server: &Server) -> u64 {
    server.run(&["check", "user", "--cost", "0", "--json"]).json()["limit"].as_u64().expect("a limit")
}

#[test]
fn limits_follow_a_measurement_down_fast_and_up_slowly() {
    let server = Server::with_policy(POLICY);
    let millis = Arc::new(AtomicU64::new(900));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/adaptive/controller.py");
    let mut command = Command::new("python3");
    command.args([script, "--query", "p99", "--target", "0.5", "--every", "0.5", "--least", "0.3"]);
    let prometheus = prometheus(Arc::clone(&millis));
    command.args(["--prometheus", &format!("http://{}", prometheus.address)]);
    command.args(["--weir", &format!("http://{}", server.http)]);
    let controller = Killed(command.stderr(Stdio::null()).spawn().expect("python3 starts"));
    eventually("0.3 of the limits", || (limit(&server) == 300).then_some(()));
    millis.store(100, Ordering::Relaxed);
    eventually("a tenth more", || ((301..1_000).contains(&limit(&server))).then_some(()));
    eventually("all of the limits", || (limit(&server) == 1_000).then_some(()));
    eventually("the override is ended", || {
        let listed = server.run(&["overrides"]);
        (listed.out == "no overrides\n").then_some(())
    });
    millis.store(900, Ordering::Relaxed);
    eventually("less again", || (limit(&server) < 1_000).then_some(()));
    drop(controller);
    eventually("the last override has ended by itself", || (limit(&server) == 1_000).then_some(()));
    let audit = || server.run(&["audit"]).out;
    assert!(audit().contains("0.9 measured, 0.5 wanted: 30% of the limits"));
    eventually("the end is in the log", || audit().lines().next()?.contains("weir (its end) ended").then_some(()));
}
