//! Commands whose output is a pipe end when its reader does, as in `weir … | head -1`.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

use serde_json::json;
use weir_test_redis::{Options, Server as Redis};

use crate::support::{Killed, eventually, server::Setup, weir};

const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/nested/limits.yaml");
const POLICY: &str = "schema: { user: { children: { '*': { limits: [[2, 1, 86400]] } } } }";
/// More rows than a pipe has capacity for, on many pages of a scan.
const KEYS: usize = 6_000;

/// Runs a command whose reader ends after the first line. Returns its exit code and standard error.
fn ended_after_a_line(command: &mut Command) -> (Option<i32>, String) {
    let mut child = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().expect("captured")).read_line(&mut line).expect("a line");
    let status = eventually("its end", || child.0.try_wait().expect("its state"));
    let mut err = String::new();
    child.0.stderr.take().expect("captured").read_to_string(&mut err).expect("text");
    (status.code(), err)
}

#[test]
fn a_trace_without_an_end_is_replayed_until_the_reader_ends() {
    let script = r#"while :; do echo '{"at_us":0,"key":["user","a"]}'; done"#;
    let mut trace = Killed(Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("it starts"));
    let trace = trace.0.stdout.take().expect("captured");
    let replay = ended_after_a_line(weir().args(["simulate", "--limits", LIMITS]).stdin(trace));
    assert_eq!(replay, (Some(0), String::new()));
}

#[test]
fn stored_keys_are_scanned_until_the_reader_ends() {
    let redis = Redis::start(Options::socket());
    let server = Setup::new().policy(POLICY).shared(&redis).start();
    for first in (0..KEYS).step_by(500) {
        let checks: Vec<_> =
            (first..first + 500).map(|index| json!({ "key": ["user", format!("u{index}")] })).collect();
        assert_eq!(server.ask("POST /v1/check_batch", None, &json!({ "checks": checks })).status, 200);
    }
    let scans = || redis.calls().get("scan").copied().unwrap_or_default();
    let list = ["keys", "--all", "--addr", &server.grpc];
    let before = scans();
    assert_eq!(ended_after_a_line(weir().args(list)), (Some(0), String::new()));
    let (until_closed, all) = (scans() - before, scans());
    assert_eq!(server.run(&["keys", "--all"]).out.lines().count(), KEYS + 1);
    let all = scans() - all;
    assert!(until_closed * 2 < all, "{until_closed} of {all} SCAN");
}
