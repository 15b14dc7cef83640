//! `weir limits diff`: changes in the checks allowed by two policies.

use serde_json::{Value, json};

use crate::support::{Folder, Run, run};

const OLD: &str = "schema:
  user:
    children:
      '*':
        limits:
          - { gcra: { burst: 15, count: 30, period: 60s }, name: per-user }
          - { fixed_window: { count: 5000, period: 1d }, name: per-day, shadow: true }
        children:
          trade: { limits: [{ token_bucket: { capacity: 6, count: 10, period: 15s }, name: trades }] }
  team: { children: { '*': { limits: [{ fixed_window: { count: 9, period: 1d }, name: team }] } } }
";

fn diff(old: &str, new: &str, more: &[&str]) -> Run {
    let dir = Folder::of(&[("old.yaml", old), ("new.yaml", new)]);
    run(&[&["limits", "diff", &dir.path("old.yaml"), &dir.path("new.yaml")], more].concat())
}

#[test]
fn policies_that_say_the_same_do_not_differ() {
    let same = diff(OLD, &OLD.replace("60s", "1m"), &[]);
    assert_eq!((same.code, same.out.as_str(), same.err.as_str()), (0, "no difference\n", ""));
}

#[test]
fn unnamed_limits_in_another_order_do_not_differ() {
    let limits = ["{ gcra: { burst: 9, count: 10, period: 1s } }", "{ gcra: { burst: 99, count: 500, period: 1h } }"];
    let of = |[one, other]: [&str; 2]| format!("schema: {{ user: {{ limits: [{one}, {other}] }} }}");
    let (old, new) = (of(limits), of([limits[1], limits[0]]));
    let said = diff(&old, &new, &[]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    // The names in metrics and overrides change.
    let lines: Vec<_> = said.out.lines().collect();
    assert!(
        matches!(lines[..], [one, other, "forgets nothing"] if [one, other].iter().all(|line| line.starts_with("moves: "))),
        "{lines:?}"
    );
    let said = diff(&old, &new.replace("count: 10", "count: 5"), &[]);
    let expected = "\
~ default:user#gcra1 (was user#gcra0): gcra { burst: 9, count: 10, period: 1s } -> gcra { burst: 9, count: 5, period: 1s }
    10 -> 5 a second (half as much), 10 at once as before
";
    assert!(said.code == 1 && said.out.starts_with(expected), "{said:?}");
}

#[test]
fn a_difference_describes_its_effect_on_keys() {
    let new = OLD
        .replace("count: 30, period: 60s", "count: 60, period: 60s")
        .replace(", shadow: true", "")
        .replace("capacity: 6, count: 10, period: 15s", "capacity: 3, count: 5, period: 15s")
        .replace("team: { children", "group: { children")
        .replace("schema:", "charge: independent\nschema:");
    let said = diff(OLD, &new, &[]);
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    let expected = "\
+ default:group/*#team: fixed_window { count: 9, period: 1d }
    these keys had no limit
~ default
    charge: all_or_nothing -> independent
~ default:user/*#per-day: fixed_window { count: 5000, period: 1d }, shadow -> fixed_window { count: 5000, period: 1d }
    shadow is turned off: it refuses from now on
~ default:user/*#per-user: gcra { burst: 15, count: 30, period: 1m } -> gcra { burst: 15, count: 60, period: 1m }
    30 -> 60 a minute (twice as much), 16 at once as before
~ default:user/*/trade#trades: token_bucket { capacity: 6, count: 10, period: 15s } -> token_bucket { capacity: 3, count: 5, period: 15s }
    40 -> 20 a minute (half as much), 6 -> 3 at once (half as much)
- default:team/*#team: fixed_window { count: 9, period: 1d }
    these keys have no limit any more
";
    let (differences, rest) = said.out.split_once("moves: ").expect("counts that go on");
    assert_eq!(differences, expected);
    assert!(rest.contains("`per-user`: { burst: 15, count: 30, period: 1m } continues"), "{rest}");
    assert!(rest.ends_with("\nforgets: default domain: `team`: `team/*` was removed\n"), "{rest}");
}

#[test]
fn keys_unlimited_by_a_new_node_are_a_difference() {
    let of = |more: &str| format!("schema: {{ user: {{ children: {{ '*': {{ limits: [15, 30, 60] }}{more} }} }} }}");
    for root in ["{}", "{ factor: 0, limits: [15, 30, 60] }"] {
        let (old, new) = (of(""), of(&format!(", root: {root}")));
        let said = diff(&old, &new, &[]);
        assert_eq!((said.code, said.err.as_str()), (1, ""));
        let expected = "\
- default:user/root: gcra { burst: 15, count: 30, period: 1m }
    these keys have no limit any more
forgets: default domain: `user/*#gcra0`: no limit at `user/root` continues its count (";
        assert!(said.out.starts_with(expected), "{}", said.out);
        let back = diff(&new, &old, &[]);
        let expected = "\
+ default:user/root: gcra { burst: 15, count: 30, period: 1m }
    these keys had no limit
forgets nothing
";
        assert_eq!((back.code, back.out.as_str()), (1, expected));
    }
}

#[test]
fn counts_that_are_lost_are_a_difference() {
    let of = |more: &str| {
        format!("schema: {{ user: {{ limits: [9, 9, 9], children: {{ '*': {{ limits: [15, 30, 60] }}{more} }} }} }}")
    };
    let said = diff(&of(""), &of(", root: {}"), &[]);
    assert!(said.code == 1 && said.out.starts_with("forgets: "), "{}", said.out);
}

#[test]
fn the_json_has_numbers() {
    let new = OLD
        .replace("count: 30", "count: 45")
        .replace("- { fixed_window: { count: 5000, period: 1d }, name: per-day, shadow: true }", "");
    let said = diff(OLD, &new, &["--json"]);
    assert_eq!(said.code, 1);
    let said = said.json();
    assert_eq!(
        said["differences"][0],
        json!({ "kind": "changed", "name": "default:user/*#per-user",
            "before": "gcra { burst: 15, count: 30, period: 1m }", "after": "gcra { burst: 15, count: 45, period: 1m }",
            "means": ["30 -> 45 a minute (1.5 times as much), 16 at once as before"],
            "effect": { "at_once": [16, 16], "per_second": [0.5, 0.75] } })
    );
    let removed = &said["differences"][1];
    assert_eq!((&removed["kind"], &removed["after"], &removed["means"]), (&json!("removed"), &Value::Null, &json!([])));
    assert_eq!(
        (said["moved"].as_array().map(Vec::len), said["forgotten"].as_array().map(Vec::len)),
        (Some(1), Some(1))
    );
}

#[test]
fn an_invalid_policy_is_an_error_and_no_difference() {
    let said = diff(OLD, "schema: { a: { limits: [1, 0, 1] } }", &[]);
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(said.err.contains("new.yaml:1:28: count must be 1 to 2^32, not 0"), "{}", said.err);
}
