//! `weir simulate --compare`: one trace under two policies.

use serde_json::{Value, json};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{Folder, Run, run, run_with};

const TIGHT: &str = "schema: { user: { children: { '*': { limits: [{ fixed_window: { count: 1, period: 10s }, name: per-user \
                     }] } } } }";
const LOOSE: &str = "schema: { user: { children: { '*': { limits: [{ fixed_window: { count: 9, period: 10s }, name: per-user \
                     }, { fixed_window: { count: 2, period: 1m }, name: per-minute }] } } } }";
fn compare(a: &str, b: &str, lines: &[Value], args: &[&str]) -> Run {
    let dir = Folder::of(&[("a.yaml", a), ("b.yaml", b)]);
    let trace: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let run = run_with(&[&["simulate", "--compare", &dir.path("a.yaml"), &dir.path("b.yaml")], args].concat(), &trace);
    let dir = dir.path("");
    Run { out: run.out.replace(&dir, ""), err: run.err.replace(&dir, ""), ..run }
}

fn at(seconds: u64, user: &str) -> Value {
    json!({ "at_us": seconds * 1_000_000, "key": ["user", user] })
}

/// Returns the lines of one kind.
fn of_kind(run: &Run, kind: &str) -> Vec<Value> {
    run.json_lines().into_iter().filter(|line| line["kind"] == kind).collect()
}

/// A: 1 in 10 s. B: 2 in a minute. Alex is refused only by A, then by both, then only by B.
fn story() -> Vec<Value> {
    vec![at(0, "alex"), at(1, "alex"), at(2, "alex"), at(3, "berta"), at(11, "alex"), at(12, "carla")]
}

#[test]
fn the_text_report_lists_differing_keys() {
    let run = compare(TIGHT, LOOSE, &story(), &[]);
    let expected = "\
A: a.yaml
B: b.yaml
6 requests, of which 2 are treated differently: 1 refused only by A, 1 refused only by B
A: 4 allowed, 2 refused
B: 4 allowed, 2 refused

limit       A allowed  A refused  B allowed  B refused  differences
per-minute          -          -          4          2            1
per-user            4          2          6          0            1

keys that are treated differently: 1
  user / alex: 1 refused only by A, 1 refused only by B; first in line 2 at 1s, refused only by A, by per-user of A
";
    assert_eq!((run.code, run.err.as_str(), run.out.as_str()), (1, "", expected));
}

#[test]
fn the_json_report_has_one_object_per_line() {
    let run = compare(TIGHT, LOOSE, &story(), &["--json"]);
    let how = json!({ "refused_only_by_a": 1, "refused_only_by_b": 1, "invalid_only_under_a": 0,
        "invalid_only_under_b": 0, "waits_longer_under_a": 0, "waits_longer_under_b": 0 });
    let party =
        |policy: &str| json!({ "policy": policy, "allowed": 4, "refused": 2, "invalid": 0, "first_invalid": null });
    assert_eq!(
        of_kind(&run, "total"),
        [json!({ "kind": "total", "requests": 6, "resets": 0, "differ": 2, "how": how, "a": party("a.yaml"),
            "b": party("b.yaml"), "keys": { "differ": 1, "let_go": 0 } })]
    );
    let did = |allowed: u64, refused: u64, first: Option<u64>, decided: u64| {
        json!({ "allowed": allowed,
        "refused": refused, "first_refusal_us": first, "decided_differences": decided })
    };
    let (two, one) = (Some(2_000_000), Some(1_000_000));
    assert_eq!(
        of_kind(&run, "limit"),
        [
            json!({ "kind": "limit", "domain": "", "limit": "per-minute", "a": null, "b": did(4, 2, two, 1) }),
            json!({ "kind": "limit", "domain": "", "limit": "per-user", "a": did(4, 2, one, 1), "b": did(6, 0, None, 0) }),
        ]
    );
    assert_eq!(
        of_kind(&run, "key"),
        [json!({ "kind": "key", "domain": "", "key": ["user", "alex"], "differ": 2, "how": how, "missed_at_most": 0,
            "first": { "line": 2, "at_us": 1_000_000, "how": "refused_only_by_a", "limit": "per-user" } })]
    );
    assert_eq!((run.code, run.out.lines().count()), (1, 4));
}

#[test]
fn equivalent_policies_exit_with_0() {
    let run = compare(TIGHT, TIGHT, &story(), &[]);
    assert_eq!(run.code, 0);
    assert!(run.out.contains("6 requests, of which none is treated differently\n"), "{}", run.out);
    assert!(!run.out.contains("keys that"), "{}", run.out);
    // A different name of the limit is not a difference in decisions either.
    let other = TIGHT.replace("per-user", "by-user");
    assert_eq!(compare(TIGHT, &other, &story(), &["--json"]).code, 0);
    let nothing = compare(TIGHT, LOOSE, &[json!({ "at_us": 0, "key": ["group"] })], &[]);
    assert_eq!(nothing.code, 0);
    assert!(nothing.out.contains("no limit applies"), "{}", nothing.out);
}

#[test]
fn each_difference_can_be_printed_as_it_occurs() {
    let run = compare(TIGHT, LOOSE, &story(), &["--each"]);
    let printed: Vec<_> = run.out.lines().take(3).collect();
    assert_eq!(
        printed,
        [
            "line 2 at 1s: user / alex: A refuses it (per-user, retry after 9s); B allows it",
            "line 5 at 11s: user / alex: A allows it; B refuses it (per-minute, retry after 49s)",
            "A: a.yaml",
        ]
    );
    let each = of_kind(&compare(TIGHT, LOOSE, &story(), &["--each", "--json"]), "difference");
    assert_eq!(each.len(), 2);
    assert_eq!(
        each[1],
        json!({ "kind": "difference", "line": 5, "at_us": 11_000_000, "domain": "", "key": ["user", "alex"],
            "how": "refused_only_by_b", "a": { "is": "allowed", "wait_us": 0, "limit": "per-user" },
            "b": { "is": "refused", "retry_after_us": 49_000_000, "limit": "per-minute" } })
    );
}

#[test]
fn a_request_valid_under_one_policy_is_a_difference() {
    let other = format!("domain: api\n{LOOSE}");
    let lines =
        [at(0, "alex"), json!({ "at_us": 7, "domain": "nowhere", "key": ["a"] }), json!({ "at_us": 8, "key": [] })];
    let run = compare(TIGHT, &other, &lines, &["--json"]);
    assert_eq!(run.code, 1);
    let total = &of_kind(&run, "total")[0];
    assert_eq!((&total["differ"], &total["how"]["invalid_only_under_b"]), (&json!(1), &json!(1)), "{total}");
    assert_eq!((&total["a"]["invalid"], &total["b"]["invalid"]), (&json!(2), &json!(3)), "{total}");
    assert_eq!(total["b"]["first_invalid"], json!({ "line": 1, "error": "no policy defines the default domain" }));
    assert_eq!(of_kind(&run, "key")[0]["first"]["limit"], Value::Null);
}

#[test]
fn resets_apply_to_both_policies() {
    let reset = json!({ "at_us": 2_000_000, "reset": ["user", "alex"] });
    let lines = [at(0, "alex"), at(1, "alex"), reset, at(3, "alex")];
    let run = compare(TIGHT, LOOSE, &lines, &["--json"]);
    let total = &of_kind(&run, "total")[0];
    assert_eq!((&total["resets"], &total["a"]["allowed"], &total["differ"]), (&json!(1), &json!(2), &json!(1)));
}

#[test]
fn keys_with_the_most_differences_are_listed_first() {
    let users = ["one", "two", "two", "two", "one", "six", "six", "six", "six", "same"];
    let lines: Vec<_> = users.iter().map(|user| at(0, user)).collect();
    let none = "schema: {}";
    for (top, expected) in [("9", &["six", "two", "one"][..]), ("2", &["six", "two"]), ("0", &[])] {
        let run = compare(TIGHT, none, &lines, &["--json", "--top", top]);
        let keys: Vec<_> = of_kind(&run, "key").iter().map(|line| line["key"][1].as_str().map(str::to_owned)).collect();
        assert_eq!(keys, expected.iter().map(|key| Some((*key).to_owned())).collect::<Vec<_>>());
    }
    let text = compare(TIGHT, none, &lines, &["--top", "1"]).out;
    assert!(text.contains("keys that are treated differently: 3; the 1 that do most\n  user / six: 3 "), "{text}");
}

#[test]
fn exceeding_the_tracked_keys_is_reported() {
    let mut trace = String::new();
    for user in 0..100_002 {
        let line = format!("{{\"at_us\":0,\"key\":[\"user\",\"{user}\"],\"cost\":2}}\n");
        trace.push_str(&line);
        if user == 7 {
            trace.push_str(&line);
        }
    }
    let dir = Folder::new();
    let trace = ["--trace", &dir.write("trace", trace)];
    let json = compare(TIGHT, "schema: {}", &[], &[&trace[..], &["--json", "--top", "3"]].concat());
    let keys = of_kind(&json, "key");
    assert_eq!(
        (&keys[0]["key"][1], &keys[0]["differ"], &keys[0]["missed_at_most"]),
        (&json!("7"), &json!(2), &json!(0))
    );
    let total = &of_kind(&json, "total")[0];
    assert_eq!((&total["differ"], &total["keys"]), (&json!(100_003), &json!({ "differ": 100_000, "let_go": 50_000 })));
    let text = compare(TIGHT, "schema: {}", &[], &[&trace[..], &["--top", "3"]].concat()).out;
    assert!(text.contains("keys that are treated differently: at least 100000; the 3 that do most\n"), "{text}");
    assert!(text.contains("dropped 50000 times"), "{text}");
}

#[test]
fn errors_exit_with_2() {
    let good = at(0, "alex");
    let bad_line = compare(TIGHT, LOOSE, &[good.clone(), json!("rubbish")], &[]);
    assert_eq!((bad_line.code, bad_line.out.as_str()), (2, ""));
    assert!(bad_line.err.contains("line 2"), "{}", bad_line.err);
    let bad_policy = compare(TIGHT, "schema: { user: { limit: 1 } }", std::slice::from_ref(&good), &[]);
    assert_eq!(bad_policy.code, 2);
    assert!(bad_policy.err.contains("b.yaml:1"), "{}", bad_policy.err);
    for args in [
        &["--compare", "a.yaml"][..],
        &["--compare", "/nowhere/a.yaml", "/nowhere/b.yaml"],
        &["--compare", "a.yaml", "b.yaml", "--summary"],
        &["--compare", "a.yaml", "b.yaml", "--limits", "c.yaml"],
        &["--top", "3"],
        &["--each"],
        &["--json"],
    ] {
        let run = run(&[&["simulate"], args].concat());
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{args:?}");
        assert!(!run.err.is_empty());
    }
}

#[test]
fn comparing_on_redis_matches_memory_and_leaves_no_keys() {
    let redis = Redis::start(Options::socket());
    redis.cli(&["SET", "weir:other", "kept"]);
    let here = compare(TIGHT, LOOSE, &story(), &["--json", "--each"]);
    let there = compare(TIGHT, LOOSE, &story(), &["--json", "--each", "--store", &redis.url()]);
    assert_eq!((there.code, there.err.as_str()), (1, ""));
    assert_eq!(there.out, here.out);
    let broken = compare(TIGHT, LOOSE, &[at(0, "alex"), json!("rubbish")], &["--store", &redis.url()]);
    assert_eq!(broken.code, 2);
    assert_eq!(redis.cli(&["DBSIZE"]), "1");
}
