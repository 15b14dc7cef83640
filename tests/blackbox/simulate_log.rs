//! `weir simulate --access-log`: traces from a proxy's access log.

use serde_json::{Value, json};

use crate::support::{Folder, Run, run, run_with};

const POLICY: &str = "schema: { ip: { children: { '*': { limits: [{ fixed_window: { count: 2, period: 10s }, name: per-ip }] \
                      } } } }";
const COMMON: &str = r#"10.0.0.1 - alex [10/Oct/2023:13:55:36 -0700] "GET /shop/cart?id=7 HTTP/1.1" 200 2326"#;
const COMBINED: &str =
    r#"10.0.0.1 - - [10/Oct/2023:13:55:36 -0700] "POST /shop HTTP/1.1" 201 - "http://a/" "curl/8 \"x\"""#;
const ENVOY: &str = r#"[2023-10-10T20:55:36.310Z] "GET /api/v1?x HTTP/2" 204 - 154 9 226 100 "1.1.1.1,10.0.0.1" "nsq2http" "cc21" "api.example.com" "tcp://10.0.2.1:80""#;
/// The time of these lines, in microseconds.
const AT: i64 = 1_696_971_336_000_000;

fn log(lines: &[&str], args: &[&str]) -> Run {
    let dir = Folder::new();
    let limits = ["simulate", "--limits", &dir.write("limits.yaml", POLICY), "--access-log", "-"];
    run_with(&[&limits, args].concat(), &lines.iter().map(|line| format!("{line}\n")).collect::<String>())
}

/// Returns keys and times of the lines, which must all be valid.
fn checks(lines: &[&str], args: &[&str]) -> Vec<(Vec<String>, i64)> {
    let run = log(lines, args);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let line = |line: &Value| {
        (serde_json::from_value(line["key"].clone()).expect("a key"), line["at_us"].as_i64().expect("a time"))
    };
    run.json_lines().iter().map(line).collect()
}

fn key(line: &str, key_from: &str) -> Vec<String> {
    checks(&[line], &["--key-from", key_from]).remove(0).0
}

#[test]
fn text_formats_are_detected_line_by_line() {
    let lines = checks(&[COMMON, ENVOY, COMBINED], &["--key-from", "ip/{remote_addr}/{method}/{path}"]);
    let expected = [("GET", "/shop/cart", AT), ("GET", "/api/v1", AT + 310_000), ("POST", "/shop", AT)];
    assert_eq!(
        lines,
        expected.map(|(method, path, at)| (["ip", "10.0.0.1", method, path].map(str::to_owned).into(), at))
    );
}

#[test]
fn fields_have_their_documented_names() {
    assert_eq!(
        key(COMMON, "{remote_user}/{ident}/{status}/{bytes}/{protocol}/{path:1}/{path:2}/{path:3}/{request:path}"),
        ["alex", "-", "200", "2326", "HTTP/1.1", "shop", "cart", "-", "GET /shop/cart"]
    );
    assert_eq!(key(COMBINED, "{referer}/{user_agent}/{bytes}"), ["http://a/", "curl/8 \\\"x\\\"", "-"]);
    let hosted = format!("example.com:443 {COMBINED}");
    assert_eq!(key(&hosted, "{host}/{remote_addr}"), ["example.com:443", "10.0.0.1"]);
    assert_eq!(
        key(ENVOY, "{host}/{status}/{bytes}/{bytes_received}/{user_agent}/{request_id}/{x_forwarded_for}"),
        ["api.example.com", "204", "9", "154", "nsq2http", "cc21", "1.1.1.1,10.0.0.1"]
    );
}

#[test]
fn json_lines_can_have_any_fields_and_time_formats() {
    let lines = [
        r#"{"time":"2023-10-10T20:55:36Z","user":{"id":7},"url":"https://h/a/b?c"}"#,
        r#"{"ts":1696971336.25,"user":{"id":"a/b"},"url":"/"}"#,
        r#"{"@timestamp":"2023-10-10T22:55:36.5+0200","user.id":true,"url":"/x"}"#,
        r#"{"msec":1696971336750,"user":{"id":null},"url":""}"#,
        r#"{"ts":"10/Oct/2023:13:55:37 -0700","user":{"id":"-"},"url":"/y"}"#,
    ];
    let keys = [["7", "/a/b"], ["a/b", "/"], ["true", "/x"], ["-", "-"], ["-", "/y"]];
    let times = [AT, AT + 250_000, AT + 500_000, AT + 750_000, AT + 1_000_000];
    let expected: Vec<_> = keys.into_iter().map(|key| key.map(str::to_owned).to_vec()).zip(times).collect();
    assert_eq!(checks(&lines, &["--key-from", "{user.id}/{url:path}"]), expected);
    let named = [r#"{"when":{"ms":"1696971336001"},"time":"rubbish"}"#];
    let named = checks(&named, &["--key-from", "{gone?}", "--time-from", "when.ms"]);
    assert_eq!(named, [(vec!["-".to_owned()], AT + 1_000)]);
}

#[test]
fn lines_of_one_second_are_spread_by_default() {
    let later = COMMON.replace(":36 ", ":37 ");
    let lines = [COMMON, COMMON, COMMON, COMMON, &later, COMMON];
    let times = |args: &[&str]| -> Vec<i64> {
        checks(&lines, &[&["--key-from", "{remote_addr}"], args].concat()).into_iter().map(|(_, at)| at - AT).collect()
    };
    assert_eq!(times(&[]), [0, 250_000, 500_000, 750_000, 1_000_000, 0]);
    assert_eq!(times(&["--arrivals", "together"]), [0, 0, 0, 0, 1_000_000, 0]);
}

#[test]
fn a_policy_is_simulated_on_an_access_log() {
    let lines = [COMMON, COMMON, "", COMMON];
    let run = log(&lines, &["--key-from", "ip/{remote_addr}", "--summary"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(run.out, "per-ip: 2 allowed, 1 refused, the first at 2023-10-10T20:55:36.666666Z\n");
    let output = log(&[COMMON], &["--key-from", "ip/{remote_addr}"]).json();
    assert_eq!(
        (&output["line"], &output["allowed"], &output["levels"][0]["name"]),
        (&json!(1), &json!(true), &json!("per-ip"))
    );
    let costly = log(&[COMMON, COMBINED], &["--key-from", "ip/{remote_addr}", "--cost-from", "bytes", "--summary"]);
    assert_eq!(costly.out, "per-ip: 1 allowed, 1 refused, the first at 2023-10-10T20:55:36Z\n");
    let elsewhere = log(&[COMMON], &["--key-from", "ip/{remote_addr}", "--domain", "api"]).out;
    assert!(
        elsewhere.contains("no policy defines the domain `api`") && elsewhere.contains("\"line\":1"),
        "{elsewhere}"
    );
    let unmatched = log(&[COMMON], &["--key-from", "pi/{remote_addr}", "--summary"]);
    assert_eq!(unmatched.out, "no limit applies to any line\n");
}

#[test]
fn policies_are_compared_on_an_access_log() {
    let dir = Folder::new();
    let (a, b) = (dir.write("a.yaml", POLICY), dir.write("b.yaml", POLICY.replace("count: 2", "count: 1")));
    let log = dir.write("access.log", format!("{COMMON}\n{COMMON}\n{COMMON}\n"));
    let run = run(&["simulate", "--compare", &a, &b, "--access-log", &log, "--key-from", "ip/{remote_addr}"]);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    let line = "ip / 10.0.0.1: 1 refused only by B; first in line 2 at 2023-10-10T20:55:36.333333Z, by per-ip of B\n";
    assert!(run.out.contains(line), "{}", run.out);
}

#[test]
fn unparseable_lines_are_skipped_and_reported() {
    let times = COMMON.replace("Oct", "Okt");
    let mut lines = vec![COMMON, "rubbish", &times, "{\"time\":1", "{\"time\":1}", "[x", COMMON];
    let run = log(&lines, &["--key-from", "{remote_addr}", "--summary"]);
    assert_eq!(run.code, 0);
    let output: Vec<_> = run.err.lines().collect();
    for (line, text) in output.iter().zip([
        "weir: line 2 is skipped: not in the common or combined log format",
        "weir: line 3 is skipped: `10/Okt/2023:13:55:36 -0700` is not a time in a known format",
        "weir: line 4 is skipped: invalid JSON: EOF",
        "weir: line 5 is skipped: no field `remote_addr`",
        "weir: line 6 is skipped: not in Envoy's format",
        "weir: 5 of 7 lines were skipped",
    ]) {
        assert!(line.starts_with(text), "{line}");
    }
    assert_eq!(output.len(), 6);
    lines.extend(["rubbish"; 9]);
    let more = log(&lines, &["--key-from", "{remote_addr}", "--summary"]).err;
    assert_eq!(more.lines().count(), 6, "{more}");
    assert!(more.ends_with("weir: 14 of 16 lines were skipped\n"), "{more}");
}

#[test]
fn a_log_without_a_parseable_line_is_an_error() {
    let run = log(&["rubbish", "rubbish"], &["--key-from", "{remote_addr}", "--summary"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.ends_with("weir: none of the 2 lines could be parsed\n"), "{}", run.err);
    let typo = log(&[COMMON], &["--key-from", "{remote_adr}"]);
    assert_eq!(typo.code, 2);
    assert!(typo.err.contains("no field `remote_adr`"), "{}", typo.err);
    let empty = log(&[], &["--key-from", "{remote_addr}"]);
    assert_eq!((empty.code, empty.out.as_str(), empty.err.as_str()), (0, "", ""));
}

#[test]
fn lines_that_are_not_utf8_are_skipped() {
    let dir = Folder::new();
    let path = dir.write("access.log", [COMMON.as_bytes(), b"\n\xff\n", COMMON.as_bytes()].concat());
    let run = run(&["simulate", "--access-log", &path, "--key-from", "{remote_addr}"]);
    assert_eq!((run.code, run.out.lines().count()), (0, 2));
    assert!(run.err.contains("line 2 is skipped: not UTF-8"), "{}", run.err);
}

#[test]
fn invalid_arguments_are_rejected() {
    for (args, expected) in [
        (&["--access-log", "x"][..], "--key-from"),
        (&["--key-from", "{a}"], "--access-log"),
        (&["--cost-from", "bytes"], "--access-log"),
        (&["--access-log", "x", "--key-from", "a//b"], "segment 2"),
        (&["--access-log", "x", "--key-from", "u-{user}"], "segment 1"),
        (&["--access-log", "x", "--key-from", "{path:0}"], "from 1"),
        (&["--access-log", "x", "--key-from", "{a}", "--trace", "y"], "--trace"),
        (&["--access-log", "x", "--key-from", "{a}", "--arrivals", "late"], "late"),
        (&["--access-log", "/nowhere/log", "--key-from", "{a}"], "/nowhere/log"),
    ] {
        let run = run(&[&["simulate"], args].concat());
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{args:?}");
        assert!(run.err.contains(expected), "{args:?}: {}", run.err);
    }
}

#[test]
fn progress_is_printed_on_request_and_only_to_stderr() {
    let lines = vec![COMMON; 2_000];
    let quiet = log(&lines, &["--key-from", "ip/{remote_addr}"]);
    assert_eq!(quiet.err, "");
    let output = log(&lines, &["--key-from", "ip/{remote_addr}", "--progress"]);
    assert_eq!(output.out, quiet.out);
    let last = output.err.lines().last().expect("a line");
    assert!(last.starts_with("weir: 2000 lines, 100%, ") && last.ends_with(" lines/s"), "{last}");
    assert!(!output.err.contains(['\r', '\u{1b}']));
}

#[test]
fn control_characters_of_a_log_are_escaped() {
    let evil = r#"{"time":"\u001b[31mEVIL\nweir: forged \u009b2J\u202e"}"#;
    let skipped = log(&[evil, COMMON], &["--key-from", "{remote_addr}", "--summary"]);
    let why = r"line 1 is skipped: `\u001b[31mEVIL\nweir: forged \u009b2J\u202e` is not a time in a known format";
    assert!(skipped.err.starts_with(&format!("weir: {why}\n")), "{}", skipped.err);
    let trace = run_with(&["simulate", "--trace", "-"], "{\"\u{9b}2J\\u001b[2J\\n\":1}\n");
    assert!(trace.err.contains(r"\u009b2J\u001b[2J\n"), "{}", trace.err);
    let printed = log(&[r#"{"time":5,"user":"\u009b2J\u202e"}"#], &["--key-from", "ip/{user}"]);
    assert!(printed.out.is_ascii(), "{}", printed.out);
    assert_eq!(printed.json()["key"], json!(["ip", "\u{9b}2J\u{202e}"]));
}
