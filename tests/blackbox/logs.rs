//! Contents of the log: start, reloads, resets, and stores that fail or are full; its logfmt format; readers that stall.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};
use weir::proto::ResetRequest;
use weir_test_redis::{Options, Server as Redis};

use crate::{
    support::{
        Folder, Killed, Server, TIMEOUT, eventually, eventually_async,
        http::Client,
        requests::{check, peek, reset},
        server::Setup,
        weir,
    },
    tokens::{by, caller, token},
};

const POLICY: &str = "
    domain: api
    schema:
      user: { limits: [{ gcra: { burst: 1, count: 1, period: 1d } }] }
      team: { limits: [{ gcra: { burst: 9, count: 1, period: 1d }, name: all }] }";

/// Returns the fields of a line, without those that every line has.
pub fn fields(mut line: Value) -> Value {
    let object = line.as_object_mut().expect("a line");
    for name in ["timestamp", "level", "target", "message", "request_id"] {
        object.remove(name);
    }
    line
}

#[test]
fn a_start_and_a_reload_log_what_is_in_force() {
    let server = Server::with_policy(POLICY);
    let path = server.dir.path().join("limits.yaml").to_str().expect("a path").to_owned();
    let started = fields(server.log_lines("starting").remove(0));
    assert_eq!(started, json!({ "version": env!("CARGO_PKG_VERSION"), "limits": path, "limits_set_by": "--limits" }));
    let mut loaded = fields(server.log_lines("policy loaded").remove(0));
    let hash = loaded["hash"].take();
    assert_eq!(loaded, json!({ "path": path, "hash": null, "domains": 1, "limits": 2 }));
    assert!(hash.as_str().is_some_and(|hash| hash.len() == 16), "{hash}");

    server.replace_policy(&POLICY.replace("burst: 9", "burst: 8").replace("user:", "org:"));
    let mut reloaded = fields(server.wait_for_log("policy reloaded"));
    assert_ne!(reloaded["hash"].take(), hash);
    let changes = "+api:org#gcra0 ~api:team#all -api:user#gcra0";
    let expected =
        json!({ "hash": null, "domains": 1, "limits": 2, "added": 1, "changed": 1, "removed": 1, "changes": changes });
    assert_eq!(reloaded, expected);
}

#[tokio::test]
async fn every_reset_is_audited() {
    let (operator, app) = (token(), token());
    let callers =
        ["callers:\n", &caller("ops", "reset, check", &operator, ""), &caller("app", "check", &app, "")].concat();
    let server = Setup::new().policy(POLICY).credentials(&callers).start();
    let mut client = server.client().await;
    let reset = |key: &[&str]| ResetRequest { domain: "api".to_owned(), ..reset(key, true) };
    client.reset(by(Some(&operator.token), reset(&["user", "a/b"]))).await.expect("done");
    client.reset(by(Some(&app.token), reset(&["user"]))).await.expect_err("it may not");
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    let body = json!({ "domain": "api", "key": ["team"] }).to_string();
    let authorization = format!("Bearer {}", operator.token);
    let origin = format!("http://{}", server.http);
    let from_script = [("content-type", "application/json"), ("authorization", authorization.as_str())];
    let from_page = [from_script[0], from_script[1], ("sec-fetch-site", "same-origin"), ("origin", origin.as_str())];
    for headers in [&from_script[..], &from_page] {
        assert_eq!(http.ask("POST /v1/reset", headers, body.as_bytes()).expect("it answers").status, 200);
    }
    let lines = eventually("three lines", || Some(server.log_lines("reset")).filter(|lines| lines.len() >= 3));
    assert!(lines.iter().all(|line| line["level"] == "INFO" && line["target"] == "weir::audit"), "{lines:?}");
    let lines = lines.into_iter().map(|line| {
        let mut line = fields(line);
        let peer = line["peer"].take();
        assert!(peer.as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{peer}");
        line
    });
    let line = |surface, key, subtree| json!({ "client": "ops", "peer": null, "surface": surface, "domain": "api", "key": key, "subtree": subtree, "existed": false, "removed": false });
    let expected = [line("grpc", r"user/a\/b", true), line("http", "team", false), line("explorer", "team", false)];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
}

#[test]
fn the_default_domain_is_default_in_the_log() {
    let setup = Setup::new().policy(&POLICY.replace("domain: api", ""));
    let server = setup.env("WEIR_LOG__LEVEL", "weir::access=debug,info").start();
    assert_eq!(server.run(&["check", "user"]).code, 0);
    assert_eq!(server.run(&["reset", "user"]).code, 0);
    let answered = eventually("two calls", || Some(server.log_lines("answered")).filter(|lines| lines.len() == 2));
    let resets = server.log_lines("reset");
    assert_eq!(resets.len(), 1);
    for line in answered.iter().chain(&resets) {
        assert_eq!(line["domain"], "default", "{line}");
    }
}

#[tokio::test]
async fn an_outage_logs_its_effect_and_its_end() {
    let redis = Redis::start(Options::socket());
    let setup = Setup::new().env("WEIR_STORE__URL", &redis.url()).policy("schema: { '*': { limits: [9, 1, 86400] } }");
    let server = setup.env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "200ms").start();
    let mut client = server.client().await;
    eventually_async("the store answers", async || {
        (!client.check(peek(&["a"])).await.expect("an answer").into_inner().degraded).then_some(())
    })
    .await;
    redis.pause();
    let started = eventually_async("the outage is logged", async || {
        assert!(client.check(check(&["a"])).await.expect("an answer").into_inner().degraded);
        server.log_lines("store outage: deciding locally, each replica by its own counts").pop()
    });
    let started = fields(started.await);
    assert_eq!(started, json!({ "on_store_failure": "local" }));
    redis.resume();
    let over = fields(server.wait_for_log("store outage over: deciding by the shared store"));
    assert!(over["local"].as_u64() >= Some(1) && over["seconds"].is_u64(), "{over}");
    assert_eq!((&over["allow"], &over["deny"], &over["error"]), (&json!(0), &json!(0), &json!(0)));
    assert!(over["units_charged_afterwards"].is_u64() && over["units_lost"].is_u64(), "{over}");
}

/// Parses names and values of a logfmt line.
fn logfmt(line: &str) -> Option<Vec<(String, String)>> {
    let (mut rest, mut pairs) = (line, Vec::new());
    loop {
        let (name, value) = rest.split_once('=')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        let (value, after) = if value.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(value).into_iter::<String>();
            (values.next()?.ok()?, &value[values.byte_offset()..])
        } else {
            let end = value.find(' ').unwrap_or(value.len());
            (value[..end].to_owned(), &value[end..])
        };
        pairs.push((is_name.then(|| name.to_owned())?, value));
        match after.strip_prefix(' ') {
            Some(more) => rest = more,
            None => return after.is_empty().then_some(pairs),
        }
    }
}

#[test]
fn text_logs_are_logfmt() {
    let dir = Folder::new();
    let mut command = weir();
    command.args(["serve", "--limits", &dir.write("li mits.yaml", POLICY)]);
    command.env("WEIR_GRPC__LISTEN", "127.0.0.1:0").env("WEIR_HTTP__LISTEN", "127.0.0.1:0");
    let mut child = Killed(command.stderr(Stdio::piped()).spawn().expect("the service starts"));
    let lines = BufReader::new(child.0.stderr.take().expect("its log")).lines().map_while(Result::ok);
    let mut messages = Vec::new();
    for line in lines {
        let pairs = logfmt(&line).unwrap_or_else(|| panic!("not logfmt: {line}"));
        let names: Vec<_> = pairs[..4].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["ts", "level", "target", "msg"], "{line}");
        messages.push(pairs[3].1.clone());
        if messages.iter().any(|message| message == "serving") {
            break;
        }
    }
    assert_eq!(messages, ["starting", "policy loaded", "serving"]);
}

/// Starts a service with this `shutdown.delay` whose log has stalled so long that lines are lost. Returns it with the
/// number of checks.
async fn stalled(delay: &str) -> (Server, usize) {
    let setup = Setup::new().env("WEIR_LOG__LEVEL", "weir::access=debug,info").env("WEIR_SHUTDOWN__DELAY", delay);
    let snapshot = setup.path("snapshot");
    let server = setup.snapshot(snapshot).policy(&POLICY.replace("domain: api", "")).start();
    server.stall_log();
    let client = server.client().await;
    let mut checks = 0;
    while server.metric("weir_log_lines_lost_total") == 0.0 {
        let mut calls = JoinSet::new();
        for _ in 0..100 {
            let mut client = client.clone();
            calls.spawn(async move { client.check(check(&["user", "alex"])).await.expect("an answer") });
        }
        timeout(TIMEOUT, calls.join_all()).await.expect("checks are not held up");
        checks += 100;
        assert!(checks < 100_000, "no line is lost");
    }
    (server, checks)
}

#[tokio::test]
async fn a_log_whose_reader_stalls_holds_up_no_check_and_no_shutdown() {
    let (mut server, _) = stalled("200ms").await;
    assert_eq!(server.get("/readyz").0, 200);
    server.stop();
    assert!(server.dir.path().join("snapshot").exists());

    let (mut server, _) = stalled("60s").await;
    server.signal(Signal::TERM);
    eventually("it drains", || (server.get("/readyz").0 == 503).then_some(()));
    // Signals soon after the first one count as one with it.
    eventually("another signal ends it", || {
        server.signal(Signal::TERM);
        (!server.lives()).then_some(())
    });
    assert_eq!(server.wait_for_end(), 4);
}

#[tokio::test]
async fn a_log_that_is_read_again_has_all_lines_but_the_counted_ones_in_order() {
    let (mut server, checks) = stalled("0s").await;
    let lost = server.metric("weir_log_lines_lost_total") as usize;
    server.read_log();
    server.stop();
    server.wait_for_log("stopped");
    let answered = server.log_lines("answered");
    assert_eq!(answered.len() + lost, checks);
    assert!(answered.is_sorted_by_key(|line| line["timestamp"].as_str().expect("a time")));
}
