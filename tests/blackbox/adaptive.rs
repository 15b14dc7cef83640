//! The controller of adaptive limits in `examples/adaptive`, with a stub of Prometheus.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use serde_json::json;

use crate::support::{Killed, Server, eventually};

const POLICY: &str = "schema: { user: { limits: [{ token_bucket: { capacity: 1000, count: 1000, period: 1s } }] } }";

/// Starts a stub that answers every query with a thousandth of `millis`, or with no result if it is 0.
fn prometheus(millis: Arc<AtomicU64>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let head = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            assert!(head.collect::<Vec<_>>()[0].starts_with("GET /api/v1/query?query=p99"));
            let value = millis.load(Ordering::Relaxed) as f64 / 1_000.0;
            let result =
                if value > 0.0 { json!([{ "metric": {}, "value": [1, value.to_string()] }]) } else { json!([]) };
            let body = json!({ "status": "success", "data": { "resultType": "vector", "result": result } }).to_string();
            // A killed controller does not read the answer.
            let _ =
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        }
    });
    url
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
    command.args(["--prometheus", &prometheus(Arc::clone(&millis)), "--weir", &format!("http://{}", server.http)]);
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
