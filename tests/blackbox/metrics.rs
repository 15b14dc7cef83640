//! Metrics: values, and contents that must not appear in them.

use weir::proto::{CheckBatchRequest, CheckRequest, ResetRequest};

use crate::support::{
    Server, http,
    requests::{check, gcra, peek, reset, with_limits},
    server::Setup,
};

const POLICY: &str = "domain: api\nschema:\n  user:\n    children:\n      '*':\n        limits:\n          - gcra: { burst: \
                      9, count: 1, period: 1d }\n            name: per-user\n          - fixed_window: { count: 1, \
                      period: 31d }\n            shadow: true\n";

fn api(request: CheckRequest) -> CheckRequest {
    CheckRequest { domain: "api".to_owned(), ..request }
}

fn assert_series(text: &str, expected: &[(&str, f64)]) {
    for (series, value) in expected {
        assert_eq!(http::metric(text, series), *value, "{series} in\n{text}");
    }
}

/// Sends twelve checks of a key with ten units, by every call, and some that cannot be decoded.
async fn known_traffic(server: &Server) {
    let mut client = server.client().await;
    let one = || api(check(&["user", "alex"]));
    for _ in 0..6 {
        assert!(client.check(one()).await.expect("an answer").into_inner().allowed);
    }
    let batch = CheckBatchRequest { checks: vec![one(), check(&[""; 1]), one(), one()] };
    client.check_batch(batch).await.expect("answers");
    let stream = futures_util::stream::iter(vec![one(); 3]);
    let mut answers = client.check_stream(stream).await.expect("a stream").into_inner();
    while answers.message().await.expect("an answer").is_some() {}
    client.check(check(&["user", "alex"])).await.expect_err("no such domain");
    client.check(api(check(&[""; 1]))).await.expect_err("no key");
    let own = with_limits(CheckRequest { domain: "elsewhere".to_owned(), ..check(&["a"]) }, vec![gcra(0, 1, 86_400)]);
    assert!(client.check(own.clone()).await.expect("an answer").into_inner().allowed);
    assert!(!client.check(own).await.expect("an answer").into_inner().allowed);
}

#[tokio::test]
async fn metrics_match_known_traffic() {
    let server = Server::with_policy(POLICY);
    known_traffic(&server).await;
    let text = server.get("/metrics").1;
    let shadow = "limit=\"user/*#fixed_window0\"";
    assert_series(
        &text,
        &[
            ("weir_checks_total{domain=\"api\",transport=\"grpc\",outcome=\"allowed\"}", 6.0),
            ("weir_checks_total{domain=\"api\",transport=\"grpc\",outcome=\"limited\"}", 0.0),
            ("weir_checks_total{domain=\"api\",transport=\"grpc_batch\",outcome=\"allowed\"}", 3.0),
            ("weir_checks_total{domain=\"api\",transport=\"grpc_stream\",outcome=\"allowed\"}", 1.0),
            ("weir_checks_total{domain=\"api\",transport=\"grpc_stream\",outcome=\"limited\"}", 2.0),
            ("weir_checks_total{domain=\"other\",transport=\"grpc\",outcome=\"allowed\"}", 1.0),
            ("weir_checks_total{domain=\"other\",transport=\"grpc\",outcome=\"limited\"}", 1.0),
            ("weir_checks_total{domain=\"other\",transport=\"grpc\",outcome=\"error\"}", 2.0),
            ("weir_checks_total{domain=\"other\",transport=\"grpc_batch\",outcome=\"error\"}", 1.0),
            ("weir_decisions_total{domain=\"api\",limit=\"per-user\",outcome=\"allowed\"}", 10.0),
            ("weir_decisions_total{domain=\"api\",limit=\"per-user\",outcome=\"limited\"}", 2.0),
            ("weir_decisions_total{domain=\"other\",limit=\"other\",outcome=\"allowed\"}", 1.0),
            ("weir_decisions_total{domain=\"other\",limit=\"other\",outcome=\"limited\"}", 1.0),
            (&format!("weir_decisions_total{{domain=\"api\",{shadow},outcome=\"allowed\"}}"), 1.0),
            (&format!("weir_decisions_total{{domain=\"api\",{shadow},outcome=\"shadow_limited\"}}"), 11.0),
            ("weir_charged_units_total{domain=\"api\",limit=\"per-user\"}", 10.0),
            (&format!("weir_charged_units_total{{domain=\"api\",{shadow}}}"), 1.0),
            ("weir_charged_units_total{domain=\"other\",limit=\"other\"}", 1.0),
            // Under a fifth of ten units is left: after the ninth and the tenth.
            ("weir_near_limit_total{domain=\"api\",limit=\"per-user\"}", 2.0),
            ("weir_check_duration_seconds_count{transport=\"grpc\"}", 10.0),
            ("weir_check_duration_seconds_count{transport=\"grpc_batch\"}", 1.0),
            ("weir_check_duration_seconds_count{transport=\"grpc_stream\"}", 3.0),
            ("weir_keys", 3.0),
            ("weir_keys_max", 1_000_000.0),
            ("weir_descriptors_ignored_total", 0.0),
            ("weir_policy_last_reload_successful", 1.0),
            ("weir_policy_reloads_total{result=\"success\"}", 0.0),
            ("weir_policy_reloads_total{result=\"error\"}", 0.0),
            ("weir_connections{listener=\"http\"}", 1.0),
            (&format!("weir_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0),
        ],
    );
    assert!(http::metric(&text, "weir_policy_last_reload_success_timestamp_seconds") > 1.7e9);
    assert_eq!(server.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(server.get("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(server.get("/elsewhere").0, 404);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert!(line.starts_with("weir_") || line.starts_with("process_"), "{line}");
        let name = line.split(['{', ' ']).next().expect("a name");
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        for what in ["HELP", "TYPE"] {
            assert!(text.contains(&format!("# {what} {family} ")), "{family} has no {what}");
        }
    }
}

#[test]
fn only_requests_that_pass_charge_their_units() {
    let policy = "schema: { user: { limits: [[9, 1, 86400]], children: { trade: { limits: [[4, 1, 86400]] } } } }";
    let server = Server::with_policy(policy);
    for code in [0, 1, 1] {
        assert_eq!(server.run(&["check", "user", "trade", "--cost", "3"]).code, code);
    }
    let text = server.get("/metrics").1;
    let count = |series: &str| http::metric(&text, series);
    assert_eq!(count("weir_decisions_total{domain=\"default\",limit=\"user#gcra0\",outcome=\"allowed\"}"), 3.0);
    for limit in ["user#gcra0", "user/trade#gcra0"] {
        assert_eq!(count(&format!("weir_charged_units_total{{domain=\"default\",limit=\"{limit}\"}}")), 3.0, "{limit}");
    }
}

#[test]
fn limits_above_max_limit_series_count_as_other() {
    let policy = |limits: &str| format!("schema: {{ '*': {{ limits: [{limits}] }} }}");
    let fixed = |name: &str| format!("{{ fixed_window: {{ count: 1, period: 31d }}, name: {name} }}");
    let text = policy(&["a", "b", "c"].map(fixed).join(", "));
    let server = Setup::new().policy(&text).env("WEIR_METRICS__MAX_LIMIT_SERIES", "2").start();
    assert_eq!((server.run(&["check", "k"]).code, server.run(&["check", "k"]).code), (0, 1));
    let text = server.get("/metrics").1;
    // The default domain and the first limit have separate series.
    for (series, value) in [
        ("weir_decisions_total{domain=\"default\",limit=\"a\",outcome=\"limited\"}", 1.0),
        ("weir_decisions_total{domain=\"other\",limit=\"other\",outcome=\"allowed\"}", 2.0),
        ("weir_decisions_total{domain=\"other\",limit=\"other\",outcome=\"limited\"}", 2.0),
        ("weir_limits_without_series", 2.0),
    ] {
        assert_eq!(http::metric(&text, series), value, "{series} in\n{text}");
    }
    assert!(!text.contains("limit=\"b\"") && !text.contains("limit=\"c\""), "{text}");
    let warning = "metrics.max_limit_series reached: further domains and limits count as `other`";
    assert_eq!(server.log_lines(warning)[0]["others"], 2);
    server.replace_policy(&policy(&fixed("a")));
    server.wait_for_metric("weir_limits_without_series", 0.0);
}

#[test]
fn expired_keys_are_removed_and_counted() {
    let server = Server::with_policy("schema: { '*': { limits: [{ gcra: { burst: 0, count: 1, period: 1ms } }] } }");
    for key in ["a", "b", "c"] {
        assert_eq!(server.run(&["check", key]).code, 0);
    }
    server.wait_for_metric("weir_keys", 0.0);
    assert!(server.metric("weir_evictions_total{reason=\"expired\"}") >= 1.0);
}

#[tokio::test]
async fn metrics_and_logs_never_contain_keys() {
    const PRIVATE: &str = "joan.d4rc";
    let server = Setup::new().policy(POLICY).env("WEIR_GRPC__WORKERS", "1").start();
    let mut client = server.client().await;
    let key = ["user", PRIVATE];
    for request in [
        api(check(&key)),
        api(peek(&[PRIVATE])),
        check(&key),
        CheckRequest { domain: format!("of-{PRIVATE}"), ..check(&key) },
        CheckRequest { cost: Some(i64::MAX), ..api(check(&key)) },
        api(check(&[PRIVATE, ""])),
        api(check(&[PRIVATE.repeat(500)])),
        with_limits(api(check(&key)), vec![weir::proto::Limit { name: PRIVATE.to_owned(), ..gcra(1, 1, 60) }]),
    ] {
        // Whether answered or failed.
        let _ = client.check(request.clone()).await;
        let _ = client.check_batch(CheckBatchRequest { checks: vec![request] }).await;
    }
    let _ = http::get(&server.http, &format!("/{PRIVATE}"));
    let text = server.get("/metrics").1;
    assert!(!text.contains(PRIVATE), "{text}");
    let _ = client.reset(ResetRequest { domain: "api".to_owned(), ..reset(&key, true) }).await;
    assert!(!server.get("/metrics").1.contains(PRIVATE));
    // Only the audit line of the reset contains its key.
    server.wait_for_log("reset");
    let (audit, log): (Vec<_>, Vec<_>) = server.log().into_iter().partition(|line| line.contains("weir::audit"));
    assert!(!log.is_empty() && !log.iter().any(|line| line.contains(PRIVATE)), "{log:#?}");
    assert!(matches!(&audit[..], [line] if line.contains(PRIVATE)), "{audit:?}");
}
