//! `weir limits explain`.

use serde_json::json;

use crate::support::{Folder, run};

const NESTED: &str = "domain: api\nschema:\n  user:\n    children:\n      '*':\n        limits: [[15, 30, 60]]\n        \
                      children:\n          trade:\n            limits:\n              - fixed_window: { count: 5, \
                      period: 1d }\n                name: daily\n                shadow: true\n";

#[test]
fn explain_prints_which_limits_apply_and_why() {
    let dir = Folder::of(&[("limits.yaml", NESTED)]);
    let file = dir.path("limits.yaml");
    let text = run(&["limits", "explain", &file, "user", "alex", "trade", "buy", "--domain", "api"]);
    assert_eq!(text.code, 0);
    for expected in [
        "domain `api`: a refusal charges nothing (all_or_nothing); anchor 2",
        "user: found by its name",
        "user / alex: found by `*`",
        "user/*#gcra0: gcra { burst: 15, count: 30, period: 1m }",
        "daily: fixed_window { count: 5, period: 1d }, shadow",
        "user / alex / trade / buy: no node for `buy`; the walk ends here",
    ] {
        assert!(text.out.contains(expected), "{expected} is not in\n{}", text.out);
    }
    let report = run(&["limits", "explain", &file, "user", "alex", "trade", "--domain", "api", "--json"]).json();
    assert_eq!(
        (&report["domain"], &report["charge"], &report["anchor"]),
        (&json!("api"), &json!("all_or_nothing"), &json!(2))
    );
    let steps: Vec<_> =
        report["steps"].as_array().expect("steps").iter().map(|step| (&step["segment"], &step["found"])).collect();
    let exact = json!("exact");
    assert_eq!(steps, [(&json!("user"), &exact), (&json!("alex"), &json!("any")), (&json!("trade"), &exact)]);
    assert_eq!(report["steps"][1]["limits"][0]["name"], "user/*#gcra0");
    assert_eq!(report["steps"][2]["limits"][0]["shadow"], true);
}

#[test]
fn explain_says_leased_only_of_a_key_whose_checks_are() {
    let policy = |head: &str| {
        format!(
            "{head}lease: true\nschema:\n  user:\n    children:\n      '*':\n        limits:\n          - {{ name: \
             requests, lease: {{ ttl: 500ms }}, token_bucket: {{ capacity: 9, count: 9, period: 1s }} }}\n        \
             children:\n          read: {{ limits: [{{ name: reads, fixed_window: {{ count: 9, period: 1h }} }}] }}\n          \
             export: {{ limits: [{{ name: exports, lease: false, fixed_window: {{ count: 9, period: 1h }} }}] }}\n"
        )
    };
    let one = policy("charge: independent\n");
    let dir = Folder::of(&[("a.yaml", &policy("")), ("independent.yaml", &one)]);
    for (file, key, expected) in [
        ("a.yaml", &["user", "alex"][..], "period: 1s }, leased for 500ms; "),
        ("a.yaml", &["user", "alex", "read"], "period: 1s }, leased for 250ms; "),
        ("a.yaml", &["user", "alex", "export"], "period: 1s }, not leased for this key (`exports` is not leased); "),
        ("independent.yaml", &["user", "alex"], "not leased for this key (charge is independent); "),
    ] {
        let path = dir.path(file);
        let args = [&["limits", "explain", &path], key].concat();
        let text = run(&args).out;
        assert!(text.contains(expected), "{file} {key:?}: {text}");
        let is_leased = json!(expected.contains("leased for 2") || expected.contains("leased for 5"));
        let report = run(&[&args[..], &["--json"]].concat()).json();
        assert_eq!(report["steps"][1]["limits"][0]["leased"], is_leased, "{file} {key:?}");
    }
}

#[test]
fn explain_reports_missing_limits_unknown_domains_and_errors() {
    let dir = Folder::of(&[("limits.yaml", NESTED), ("bad.yaml", "schema: [")]);
    let file = dir.path("limits.yaml");
    let free = run(&["limits", "explain", &file, "group", "--domain", "api"]);
    assert_eq!(free.code, 0);
    assert!(free.out.contains("no limit on the path: everything is allowed"), "{}", free.out);
    assert!(free.err.starts_with("weir: warning: no limit applies to `group`; limits apply to `"), "{}", free.err);
    let unknown = run(&["limits", "explain", &file, "user"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("no file defines the default domain; did you mean --domain api?"), "{}", unknown.err);
    assert_eq!(run(&["limits", "explain", &dir.path("bad.yaml"), "user"]).code, 2);
    assert_eq!(run(&["limits", "explain", &file, "", "--domain", "api"]).code, 2);
}
