//! `weir simulate`: traces in virtual time.

use serde_json::{Value, json};

use crate::support::{Folder, Run, run, run_with};

const POLICY: &str = "schema:\n  user:\n    children:\n      '*':\n        limits:\n          - gcra: { burst: 1, count: 1, \
                      period: 2s }\n            name: per-user\n";

/// Runs a trace through a policy.
fn story(policy: &str, lines: &[Value], args: &[&str]) -> Run {
    let dir = Folder::new();
    let trace: String = lines.iter().map(|line| format!("{line}\n")).collect();
    run_with(&[&["simulate", "--limits", &dir.write("limits.yaml", policy)], args].concat(), &trace)
}

fn lines(run: &Run) -> Vec<Value> {
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    run.json_lines()
}

fn at(at_us: i64) -> Value {
    json!({ "at_us": at_us, "key": ["user", "alex"] })
}

#[test]
fn a_decision_has_all_its_fields() {
    let decisions = lines(&story(POLICY, &[at(5)], &[]));
    let level = json!({ "name": "per-user", "depth": 2, "shadow": false, "allowed": true, "limit": 2, "remaining": 1,
        "retry_after_us": null, "reset_after_us": 2_000_000, "wait_us": 0, "never": false });
    assert_eq!(
        decisions,
        [json!({ "at_us": 5, "allowed": true, "limit": 2, "remaining": 1, "retry_after_us": null,
            "reset_after_us": 2_000_000, "wait_us": 0, "never": false, "binding": 0, "levels": [level] })]
    );
}

#[test]
fn policies_are_read_by_the_same_rules_as_in_the_service() {
    let dir = Folder::new();
    for (file, key) in [("a.yaml", "user"), ("b.yaml", "group")] {
        let rule = "rate_limit: { unit: day, requests_per_unit: 1 }";
        dir.write(file, format!("domain: d\ndescriptors: [{{ key: {key}, {rule} }}]\n"));
    }
    let limits = dir.path(".");
    let lines = format!("{}\n", json!({ "at_us": 0, "domain": "d", "key": ["user", "a"] }));
    let simulate = |args: &[&str]| run_with(&[&["simulate", "--limits", &limits], args].concat(), &lines);
    assert!(simulate(&[]).err.contains("domain `d` is also defined"));
    assert_eq!(simulate(&["--merge-domains"]).json_lines()[0]["limit"], 1);
}

#[test]
fn without_a_limit_the_numbers_are_null() {
    let decisions = lines(&story(POLICY, &[json!({ "at_us": 0, "key": ["group"] })], &[]));
    assert_eq!(
        decisions,
        [json!({ "at_us": 0, "allowed": true, "limit": null, "remaining": null, "retry_after_us": null,
            "reset_after_us": 0, "wait_us": 0, "never": false, "binding": null, "levels": [] })]
    );
}

#[test]
fn retry_is_exact_and_time_can_step_back() {
    let decisions = lines(&story(POLICY, &[at(10), at(10), at(10), at(2_000_009), at(2_000_010), at(0)], &[]));
    let verdicts: Vec<_> =
        decisions.iter().map(|line| (line["allowed"].as_bool(), line["retry_after_us"].as_i64())).collect();
    assert_eq!(
        verdicts,
        [
            (Some(true), None),
            (Some(true), None),
            (Some(false), Some(2_000_000)),
            (Some(false), Some(1)),
            (Some(true), None),
            (Some(false), Some(4_000_010)),
        ]
    );
}

#[test]
fn resets_in_a_trace_report_whether_state_existed() {
    let reset = |at_us: i64, key: &[&str], subtree: bool| json!({ "at_us": at_us, "reset": key, "subtree": subtree });
    let story = story(
        POLICY,
        &[
            reset(0, &["user", "alex"], false),
            at(1),
            reset(2, &["user"], false),
            reset(3, &["user", "alex"], false),
            at(4),
            reset(5, &["user"], true),
            at(6),
            // After its reset time the key counts as unused.
            reset(2_000_006, &["user", "alex"], false),
        ],
        &[],
    );
    let decisions: Vec<_> =
        lines(&story).iter().map(|line| line.get("existed").or(line.get("remaining")).cloned()).collect();
    let expected = [json!(false), json!(1), json!(false), json!(true), json!(1), json!(false), json!(1), json!(false)];
    assert_eq!(decisions, expected.map(Some));
    assert_eq!(lines(&story)[0], json!({ "at_us": 0, "reset": true, "existed": false }));
}

#[test]
fn a_line_can_set_its_own_limits_and_options() {
    let own = |cost: i64| {
        json!({ "at_us": 0, "domain": "any", "key": ["a", "b"], "cost": cost, "max_wait_us": 0, "factor": 0.5,
            "limits": [{ "gcra": { "burst": 1, "count": 1, "period": "60s" }, "depth": 1 }, [9, 1, 60]],
            "charge": "independent" })
    };
    let decisions = lines(&story(POLICY, &[own(3), own(1)], &[]));
    // With a factor of 0.5 the limits are bursts of 2 + 1 and 18 + 1 units.
    assert_eq!((&decisions[0]["remaining"], &decisions[0]["levels"][1]["remaining"]), (&json!(0), &json!(16)));
    assert_eq!(decisions[1]["allowed"], false);
    assert_eq!((&decisions[1]["binding"], &decisions[1]["levels"][1]["remaining"]), (&json!(0), &json!(15)));
    assert_eq!(decisions[0]["levels"][0]["name"], "*#gcra0");
}

#[test]
fn an_invalid_request_is_reported_without_ending_the_trace() {
    let bad = |more: Value| {
        let mut line = json!({ "at_us": 9, "key": ["user", "alex"] });
        line.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        line
    };
    let cases = [
        (bad(json!({ "key": [] })), "key"),
        (bad(json!({ "key": ["a", ""] })), "key[1]"),
        (bad(json!({ "cost": 4_294_967_297_i64 })), "cost"),
        (bad(json!({ "factor": -1 })), "factor"),
        (bad(json!({ "max_wait_us": -1 })), "max_wait_us"),
        (bad(json!({ "domain": "nowhere" })), "domain"),
        (bad(json!({ "limits": [{ "gcra": { "burst": 1, "count": 0, "period": "1s" } }] })), "limits[0].gcra.count"),
        (bad(json!({ "limits": [{ "magic": {} }] })), "limits[0].magic"),
        (
            bad(json!({ "limits": [{ "gcra": { "burst": 1, "count": 1, "period": "1s" }, "depth": 3 }] })),
            "limits[0].depth",
        ),
        (json!({ "at_us": 9, "reset": [] }), "reset"),
    ];
    let mut trace: Vec<_> = cases.iter().map(|(line, _)| line.clone()).collect();
    trace.push(at(10));
    let decisions = lines(&story(POLICY, &trace, &[]));
    assert_eq!(decisions.len(), trace.len());
    for ((line, field), decision) in cases.iter().zip(&decisions) {
        assert_eq!((&decision["at_us"], decision["field"].as_str()), (&json!(9), Some(*field)), "{line}: {decision}");
        assert!(!decision["error"].as_str().expect("a sentence").is_empty());
    }
    assert_eq!(decisions[cases.len()]["remaining"], 1);
}

#[test]
fn an_unparseable_line_ends_the_run_with_its_number() {
    let good = r#"{"at_us":0,"key":["a"]}"#;
    for (bad, expected) in [
        ("rubbish", "expected value"),
        (r#"{"at_us":0}"#, "missing field `key`"),
        (r#"{"key":["a"]}"#, "missing field `at_us`"),
        (r#"{"at_us":0,"key":["a"],"csot":1}"#, "unknown field `csot`"),
        (r#"{"at_us":-1,"key":["a"]}"#, "at_us must be 0 to 2^52"),
        (r#"{"at_us":0,"key":["a"],"charge":"some"}"#, "unknown variant `some`"),
        (r#"{"at_us":0,"reset":"a"}"#, "expected a sequence"),
    ] {
        let run = run_with(&["simulate"], &format!("{good}\n{bad}\n{good}\n"));
        assert_eq!(run.code, 2, "{bad}");
        assert_eq!(run.out.lines().count(), 1, "what came before is answered");
        assert!(run.err.contains("line 2") && run.err.contains(expected), "{bad}: {}", run.err);
    }
}

#[test]
fn the_summary_counts_decisions_per_limit() {
    let trace = [at(0), at(0), at(7), at(8), json!({ "at_us": 9, "key": ["user", "berta"] })];
    let text = story(POLICY, &trace, &["--summary"]);
    assert_eq!((text.code, text.out.as_str()), (0, "per-user: 3 allowed, 2 refused, the first at 0.000007s\n"));
    let decisions = lines(&story(POLICY, &trace, &["--summary", "--json"]));
    assert_eq!(
        decisions,
        [json!({ "domain": "", "limit": "per-user", "did": { "allowed": 3, "refused": 2, "first_refusal_us": 7 } })]
    );
}

#[test]
fn a_trace_can_be_read_from_a_file() {
    let dir = Folder::new();
    let output = run(&["simulate", "--trace", &dir.write("trace.jsonl", format!("{}\n\n{}\n", at(0), at(1)))]);
    assert_eq!((output.code, output.out.lines().count()), (0, 2));
    let missing = run(&["simulate", "--trace", "/nowhere/trace"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("/nowhere/trace"), "{}", missing.err);
    let bad = run_with(&["simulate", "--limits", "/nowhere/limits.yaml"], "");
    assert_eq!(bad.code, 2);
    let unknown = run_with(&["simulate", "--store", "rdis://:secret@h"], "");
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("unknown store `rdis`") && !unknown.err.contains("secret"), "{}", unknown.err);
}
