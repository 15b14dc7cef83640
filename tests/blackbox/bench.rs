//! `weir-bench` against a running service: its counts equal the service's.

use std::{io::Read, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Folder, Killed, Run, Server, eventually, finish, server::Setup, weir_bench};

/// Five checks a day for each user.
const POLICY: &str = "domain: api\nschema: { user: { children: { '*': { limits: [[4, 5, 86400]] } } } }";
/// Number of users, and the units of all of them.
const USERS: &str = "20";
const GIVEN: u64 = 20 * 5;
/// A short load, measured from its first call.
const SHORT: [&str; 4] = ["--duration", "300ms", "--warmup", "0s"];

/// Runs a short load and returns its report.
fn bench(server: &Server, args: &[&str]) -> Value {
    let run = server.bench(&[&["--domain", "api", "--format", "json"], &SHORT[..], args].concat());
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{args:?}: {}", run.out);
    run.json()
}

fn number(report: &Value, pointer: &str) -> u64 {
    let value = report.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no number at {pointer}: {report:#}"))
}

/// Returns the number of checks that the service counted, by outcome.
fn counted(server: &Server, outcome: &str) -> u64 {
    let text = server.get("/metrics").1;
    let series = text.lines().filter(|line| line.starts_with("weir_checks_total{"));
    let values = series.filter(|line| line.contains(&format!("outcome=\"{outcome}\""))).filter_map(|line| {
        let (_, value) = line.rsplit_once(' ')?;
        value.parse::<u64>().ok()
    });
    values.sum()
}

/// Resets all users. Returns the checks counted so far.
fn start_over(server: &Server) -> [u64; 3] {
    assert_eq!(server.run(&["reset", "user", "--subtree", "--domain", "api"]).code, 0);
    all_counted(server)
}

fn all_counted(server: &Server) -> [u64; 3] {
    ["allowed", "limited", "error"].map(|outcome| counted(server, outcome))
}

/// Asserts that the report adds up, and that the service has counted the same since `before`.
fn assert_exact(server: &Server, before: [u64; 3], report: &Value, args: &[&str]) {
    let at = |pointer| number(report, pointer);
    assert_eq!(at("/checks"), at("/allowed") + at("/refused") + at("/errors/total"), "{args:?}");
    let reported = ["/allowed", "/refused", "/errors/total"].map(at);
    let expected: Vec<_> = before.iter().zip(reported).map(|(before, reported)| before + reported).collect();
    assert_eq!(all_counted(server)[..], expected, "{args:?}");
    assert!(at("/allowed") > 0 && report["checks_per_s"].as_f64() > Some(0.0), "{args:?}: {report:#}");
    assert!(report["latency_us"]["p50"].as_f64() > Some(0.0), "{args:?}");
    assert!(!report["warnings"].to_string().contains("connections were lost"), "{args:?}: {report:#}");
}

#[test]
fn every_call_is_counted_exactly_in_a_closed_loop() {
    let server = Server::with_policy(POLICY);
    for (args, checks) in [
        (&["--call", "unary"][..], 1),
        (&["--call", "unary", "--threads", "2", "--connections", "3", "--summary-only"], 1),
        (&["--call", "batch", "--batch", "7"], 7),
        (&["--call", "stream", "--window", "5"], 1),
        (&["--call", "envoy", "--distribution", "zipf", "--exponent", "1.2"], 1),
        (&["--call", "unary", "--key", "user/alex"], 1),
    ] {
        let before = start_over(&server);
        let users = if args.contains(&"--key") { &[][..] } else { &["--key", "user/{}", "--keys", USERS] };
        let report = bench(&server, &[args, users].concat());
        assert_exact(&server, before, &report, args);
        assert!(number(&report, "/allowed") <= GIVEN, "{args:?}: {report:#}");
        assert_eq!(number(&report, "/checks"), checks * number(&report, "/calls"), "{args:?}");
        assert!(report["open_loop"].is_null());
    }
}

#[test]
fn every_call_is_counted_exactly_in_an_open_loop() {
    let server = Server::with_policy(POLICY);
    for (args, checks) in [
        (&["--call", "unary"][..], 1),
        (&["--call", "batch", "--batch", "20"], 20),
        (&["--call", "stream"], 1),
        (&["--call", "stream", "--threads", "2", "--streams", "1", "--window", "1"], 1),
        (&["--call", "envoy"], 1),
    ] {
        let before = start_over(&server);
        let report = bench(&server, &[args, &["--key", "user/{}", "--keys", USERS, "--rate", "1000"]].concat());
        assert_exact(&server, before, &report, args);
        let (due, unsent) = (number(&report, "/open_loop/calls_due"), number(&report, "/open_loop/calls_unsent"));
        assert_eq!(due, 300 / checks, "{args:?}: what is due does not depend on the service");
        assert_eq!(number(&report, "/calls") + unsent, due, "{args:?}: {report:#}");
    }
}

#[test]
fn unmeasured_checks_are_reported() {
    let server = Server::with_policy(POLICY);
    let load = ["--rate", "2000", "--warmup", "100ms", "--duration", "200ms", "--format", "json"];
    let checks = ["--domain", "api", "--limit", "1000000/1000000/1s", "--refusals", "0.25", "--keys", "10"];
    let report = server.bench(&[&load[..], &checks].concat()).json();
    let [before, warm_up] = ["/not_measured/before", "/not_measured/warm_up"].map(|pointer| number(&report, pointer));
    assert_eq!(before, 20, "each of ten keys is asked until it is refused");
    assert!(warm_up > 0);
    let all = counted(&server, "allowed") + counted(&server, "limited");
    assert_eq!(all, number(&report, "/checks") + before + warm_up);
}

#[test]
fn the_refused_share_matches_the_refusals_option() {
    let server = Server::with_policy(POLICY);
    for args in [
        &["--limit", "1000000/1000000/1s", "--levels", "3", "--cost", "3"][..],
        &["--limit", "1000000/1000000/1s", "--call", "batch", "--batch", "10"],
        &["--limit", "1000000/1000000/1s", "--call", "stream"],
        // The keys to be refused are exhausted before the measurement; the other keys are too many to be refused.
        &["--key", "user/{}", "--keys", "1000000"],
        &["--call", "envoy", "--keys", "1000000"],
    ] {
        start_over(&server);
        let report = bench(&server, &[args, &["--refusals", "0.25", "--rate", "3000"]].concat());
        let (allowed, refused) = (number(&report, "/allowed") as f64, number(&report, "/refused") as f64);
        let share = refused / (allowed + refused);
        assert!(allowed + refused < 100.0 || (0.15..0.35).contains(&share), "{args:?}: {report:#}");
        assert_eq!(number(&report, "/errors/total"), 0, "{args:?}: {report:#}");
    }
    // Keys without a limit cannot be refused.
    for call in ["unary", "envoy"] {
        let run = server.bench(&["--domain", "api", "--call", call, "--key", "group/{}", "--refusals", "0.5"]);
        assert_eq!((run.code, run.out.as_str()), (2, ""));
        assert!(run.err.contains("the key has no limit"), "{}", run.err);
    }
}

#[test]
fn reports_have_the_load_and_its_results() {
    let server = Server::with_policy(POLICY);
    let pid = std::process::id().to_string();
    let report = bench(&server, &["--rate", "500", "--seed", "7", "--depth", "4", "--server-pid", &pid]);
    for (pointer, expected) in [
        ("/load/call", "unary"),
        ("/load/key", "user/{}/trade/s4"),
        ("/load/distribution", "uniform"),
        ("/load/domain", "api"),
        ("/load/address", &server.grpc),
    ] {
        assert_eq!(report.pointer(pointer).and_then(Value::as_str), Some(expected), "{pointer}: {report:#}");
    }
    assert_eq!((number(&report, "/load/seed"), number(&report, "/load/connections")), (7, 4));
    for figures in ["/latency_us", "/open_loop/sent_late_us", "/open_loop/schedule_behind_us"] {
        let at = |name: &str| report.pointer(figures).and_then(|it| it[name].as_f64());
        let rising = ["p50", "p90", "p99", "p99.9", "p99.99", "max"].map(at);
        assert!(rising.iter().all(Option::is_some) && rising.is_sorted(), "{figures}: {report:#}");
    }
    for pointer in ["/generator/us_per_check", "/generator/cores", "/server/us_per_check", "/server/cores"] {
        assert!(report.pointer(pointer).is_some_and(Value::is_f64), "{pointer}: {report:#}");
    }
    for pointer in
        ["/interrupted", "/degraded", "/errors/by_code", "/open_loop/most_waiting", "/elapsed_s", "/calls_per_s"]
    {
        assert!(report.pointer(pointer).is_some_and(|value| !value.is_null()), "{pointer}: {report:#}");
    }

    let args = ["--domain", "api", "--limit", "15/30/1m", "--rate", "500", "--live"];
    let run = server.bench(&[&args[..], &["--duration", "1200ms", "--warmup", "0s"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    for line in [
        &format!("unary to {}, open loop of 500 checks/s\n", server.grpc),
        "1000 keys `user/{}/trade` in `api`, uniform; cost 1; limit 15/30/1m; seed 1\n",
        "\nallowed ",
        "\nlatency    p50 ",
        "600 calls due",
    ] {
        assert!(run.out.contains(line), "{line} in {}", run.out);
    }
    assert!(
        run.err.lines().any(|line| line.starts_with("weir-bench: 1s  ") && line.contains(" checks/s  ")),
        "{}",
        run.err
    );
}

#[test]
fn errors_are_counted_by_code_and_only_errors_exit_with_2() {
    let server = Server::with_policy(POLICY);
    for (args, code, checks) in [
        (&["--domain", "nowhere"][..], "NOT_FOUND", 1),
        (&["--domain", "nowhere", "--call", "stream"], "NOT_FOUND", 1),
        (&["--domain", "nowhere", "--call", "batch", "--batch", "9"], "NOT_FOUND", 9),
        (&["--key", "user//{}", "--domain", "api"], "INVALID_ARGUMENT", 1),
    ] {
        // Longer than the other loads, so that each one gets an answer even on a busy machine.
        let run =
            server.bench(&[&["--format", "json", "--duration", "2s", "--warmup", "0s", "--rate", "50"], args].concat());
        assert_eq!(run.code, 2, "{args:?}: {run:?}");
        let report = run.json();
        let errors = number(&report, &format!("/errors/by_code/{code}/count"));
        assert_eq!((errors, errors), (number(&report, "/checks"), checks * number(&report, "/calls")), "{args:?}");
        assert!(errors > 0 && report["errors"]["by_code"][code]["first"] != "", "{args:?}: {report:#}");
    }
}

#[test]
fn calls_to_an_unresponsive_server_time_out() {
    let server = Server::with_policy(POLICY);
    server.signal(Signal::STOP);
    for call in ["unary", "stream"] {
        let args = ["--domain", "api", "--call", call, "--timeout", "100ms", "--format", "json"];
        let run = server.bench(&[&args[..], &SHORT].concat());
        assert_eq!(run.code, 2, "{run:?}");
        let report = run.json();
        let errors = number(&report, "/errors/by_code/DEADLINE_EXCEEDED/count");
        assert_eq!(errors, number(&report, "/checks"), "{report:#}");
        assert!(errors >= 64, "{report:#}");
    }
    server.signal(Signal::CONT);
}

#[test]
fn an_unreachable_server_is_an_error() {
    let dir = Folder::new();
    let socket = format!("unix:{}", dir.path("nobody"));
    for args in [&["--addr", &socket][..], &["--addr", &socket, "--limit", "1/1/1s", "--refusals", "0.5"]] {
        let run = finish(weir_bench().args(args));
        assert_eq!((run.code, run.out.as_str()), (2, ""));
        assert!(run.err.contains("cannot reach a service at unix:"), "{}", run.err);
    }
}

#[test]
fn invalid_options_are_rejected() {
    for (args, expected) in [
        (&["--rate", "0"][..], "a rate must be 0.001 to 100000000"),
        (&["--exponent", "0"], "an exponent must be above 0"),
        (&["--refusals", "1.5"], "a share must be 0 to 1"),
        (&["--limit", "15/30"], "write BURST/COUNT/PERIOD"),
        (&["--limit", "1/1/1s", "--levels", "4"], "--levels exceeds the key's segments"),
        (&["--levels", "2"], "--limit"),
        (&["--key", "user/alex", "--keys", "2"], "need a `{}` in the key"),
        (&["--key", "user/alex", "--refusals", "0.1"], "need a `{}` in the key"),
        (&["--refusals", "0.1", "--cost", "0"], "a --cost of at least 1"),
        (&["--call", "envoy"], "needs a --domain"),
        (&["--call", "envoy", "--domain", "d", "--depth", "3"], "an even number"),
        (&["--duration", "0s"], "--duration must be above 0"),
        (&["--duration", "2d"], "at most a day"),
        (&["--batch", "1001"], "1001"),
        (&["--call", "stream", "--connections", "10000", "--streams", "10000"], "may be in flight"),
        (&["--server-pid", "4294967295"], "/proc/4294967295/stat"),
    ] {
        let run = finish(weir_bench().args(args));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{args:?}");
        assert!(run.err.contains(expected), "{args:?}: {}", run.err);
    }
}

/// A load that runs until it is interrupted.
struct Endless(Killed);

impl Endless {
    fn start(address: &str, args: &[&str]) -> Self {
        let mut command = weir_bench();
        command.args(["--domain", "api", "--format", "json", "--duration", "1d", "--warmup", "0s"]);
        let child = command.args(["--addr", address]).args(args).stdout(Stdio::piped()).spawn();
        Self(Killed(child.expect("the program starts")))
    }

    /// Interrupts the load and returns its report.
    fn interrupt(mut self) -> Value {
        kill_process(Pid::from_child(&self.0.0), Signal::INT).expect("it lives");
        let status = eventually("the load ends", || self.0.0.try_wait().expect("its state"));
        let mut out = String::new();
        self.0.0.stdout.take().expect("captured").read_to_string(&mut out).expect("it prints UTF-8");
        let report = Run { code: 0, out, err: String::new() }.json();
        assert_eq!((status.code(), &report["interrupted"]), (Some(0), &Value::Bool(true)), "{report:#}");
        report
    }
}

/// Waits until more checks are allowed than these.
fn wait_until_asked(server: &Server, before: u64) {
    eventually("checks come", || (counted(server, "allowed") > before).then_some(()));
}

#[test]
fn an_interrupted_run_prints_a_complete_report() {
    let server = Server::with_policy(POLICY);
    for args in [&["--call", "unary"][..], &["--call", "stream"], &["--call", "batch", "--rate", "1000"]] {
        let before = start_over(&server);
        let load = Endless::start(&server.grpc, args);
        wait_until_asked(&server, before[0]);
        let report = load.interrupt();
        assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
        assert_exact(&server, before, &report, args);
    }
}

#[test]
fn a_restarted_server_is_reconnected_and_lost_calls_are_errors() {
    let dir = Folder::new();
    let socket = format!("unix:{}", dir.path("grpc.sock"));
    let serve = || Setup::new().env("WEIR_GRPC__LISTEN", &socket).policy(POLICY).start();
    let calls = [("unary", "grpc"), ("stream", "grpc_stream"), ("batch", "grpc_batch"), ("envoy", "envoy")];
    let wait_until_asked_by_all = |server: &Server| {
        for (_, transport) in calls {
            let series = format!("weir_checks_total{{domain=\"api\",transport=\"{transport}\",outcome=\"allowed\"}}");
            eventually(transport, || (server.metric(&series) > 0.0).then_some(()));
        }
    };
    let first = serve();
    let loads = calls.map(|(call, _)| {
        // Each load has its own users, so that it has allowed checks, and sends one call at a time on each connection,
        // as four loads share the machine.
        let key = format!("user/{call}-{{}}");
        Endless::start(&socket, &["--call", call, "--key", &key, "--streams", "1", "--timeout", "60s"])
    });
    wait_until_asked_by_all(&first);
    drop(first);
    let second = serve();
    wait_until_asked_by_all(&second);
    for (load, (call, _)) in loads.into_iter().zip(calls) {
        let report = load.interrupt();
        let errors = number(&report, "/errors/by_code/UNAVAILABLE/count");
        assert!(errors > 0 && errors == number(&report, "/errors/total"), "{call}: {report:#}");
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("connections were lost (4 times)"), "{call}: {warnings}");
    }
}
