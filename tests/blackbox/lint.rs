//! `weir limits lint`.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

use serde_json::json;

use crate::support::{Folder, run};

#[test]
fn lint_accepts_a_valid_policy() {
    let dir = Folder::of(&[
        ("a.yaml", "domain: api\nschema: { a: { limits: [[1, 1, 1]] }, b: { limits: [[2, 1, 1]] } }"),
        ("x.txt", ""),
    ]);
    let all = run(&["limits", "lint", &dir.path("")]);
    assert_eq!(all.code, 0);
    assert!(all.out.contains("valid; domains: 1, limits: 2"), "{}", all.out);
    assert!(all.out.contains("skipped: ") && all.out.contains("x.txt"), "{}", all.out);
    let report = run(&["limits", "lint", &dir.path("a.yaml"), "--json"]).json();
    assert_eq!(
        report,
        json!({ "valid": true, "domains": 1, "limits": 2, "warnings": [], "skipped": [], "forgotten": null, "moved": null })
    );
}

#[test]
fn file_names_that_are_not_utf8_are_reported() {
    let dir = Folder::of(&[("a.yaml", "schema: {}")]);
    let path = |name: &[u8]| Path::new(&dir.path("")).join(OsStr::from_bytes(name));
    fs::write(path(b"x\xff.txt"), "").expect("written");
    let valid = run(&["limits", "lint", &dir.path(""), "--json"]).json();
    assert!(valid["skipped"][0].as_str().is_some_and(|path| path.ends_with("x\u{fffd}.txt")), "{valid}");
    fs::write(path(b"b\xff.yaml"), "schema: 7").expect("written");
    let invalid = run(&["limits", "lint", &dir.path(""), "--json"]).json();
    assert!(invalid["errors"][0]["file"].as_str().is_some_and(|path| path.ends_with("b\u{fffd}.yaml")), "{invalid}");
}

#[test]
fn lint_reports_errors_with_line_and_column() {
    let dir = Folder::of(&[("a.yaml", "schema:\n  a: { limts: [1, 1, 1] }\n  b: { limits: [1, 0, 1] }\n")]);
    let file = dir.path("a.yaml");
    let text = run(&["limits", "lint", &file]);
    assert_eq!((text.code, text.out.as_str()), (2, ""));
    let first = format!("{file}:2:8: unknown key `limts`; did you mean `limits`?");
    let second = format!("{file}:3:20: count must be 1 to 2^32, not 0");
    assert_eq!(text.err.lines().collect::<Vec<_>>(), [first, second]);
    let report = run(&["limits", "lint", &file, "--json"]);
    assert_eq!(report.code, 2);
    let report = report.json();
    assert_eq!(report["valid"], false);
    assert_eq!(
        report["errors"][1],
        json!({ "file": file, "line": 3, "column": 20, "field": "limits.count", "message": "count must be 1 to 2^32, not 0" })
    );
}

#[test]
fn lint_rejects_a_file_that_holds_nothing_as_a_start_does() {
    let dir = Folder::of(&[("a.yaml", "schema: { a: { limits: [1, 1, 1] } }"), ("b.yaml", "# none\n")]);
    let text = run(&["limits", "lint", &dir.path("")]);
    let expected =
        format!("{}: the file has no content; to lift all limits write `schema: {{}}`\n", dir.path("b.yaml"));
    assert_eq!((text.code, text.out.as_str(), text.err.replace("//", "/")), (2, "", expected));
}

#[test]
fn surprising_settings_are_warnings() {
    let dir = Folder::of(&[
        ("above.yaml", "anchor: 3\nschema: { a: { limits: [1, 1, 1], children: { b: { limits: [0, 1, 1] } } } }"),
        ("star.yaml", "schema: { 'img*': { limits: [1, 1, 1] } }"),
        ("default.yaml", "domain: default\nschema: {}"),
        (
            "alone.yaml",
            "domain: d\ncharge: over_limit_only\ndescriptors: [{ key: k, quota_mode: true, rate_limit: { unit: day, \
                        requests_per_unit: 1 } }]",
        ),
        ("other.yaml", "domain: other\nschema: {}"),
        (
            "met.yaml",
            "domain: m\ndescriptors: [{ key: k, value: 'x*' }, { key: k, value: 'y*' }, { key: k, value: xy }, { key: k }]",
        ),
        ("unmet.yaml", "domain: u\ndescriptors: [{ key: k, value: 'x*' }, { key: k, value: 'xy*' }]"),
        ("any.yaml", "domain: a\ndescriptors: [{ key: k, descriptors: [{ key: m }, { key: m, value: '*' }] }]"),
        (
            "replaces.yaml",
            "domain: r\ndescriptors: [{ key: k, rate_limit: { name: a, unit: day, requests_per_unit: 1 } }, { key: l, \
             rate_limit: { unlimited: true, replaces: [{ name: a }, { name: b }] } }]",
        ),
    ]);
    let met = run(&["limits", "lint", &dir.path("met.yaml")]);
    assert!(met.code == 0 && !met.out.contains("warning: "), "{}", met.out);
    for (name, warning) in [
        ("default.yaml", "metrics and logs call the default domain, whose name is empty, `default` too"),
        ("other.yaml", "domains without their own series `other` too"),
        ("above.yaml", "`a` is above the anchor (3 segments) of `a/b`"),
        ("alone.yaml", "a limit in shadow mode, or a quota, that is exceeded is charged alone"),
        ("star.yaml", "`img*` is an exact name here"),
        ("unmet.yaml", "no request meets `k/xy*`: `k/x*` takes precedence"),
        ("any.yaml", "no request meets `k/*/m` without a value: `k/*/m/*` takes precedence"),
        ("replaces.yaml", "`l` without a value replaces `b`, and no limit has this name"),
    ] {
        let lenient = run(&["limits", "lint", &dir.path(name)]);
        assert_eq!(lenient.code, 0);
        assert!(lenient.out.contains("warning: ") && lenient.out.contains(warning), "{}", lenient.out);
        assert_eq!(run(&["limits", "lint", &dir.path(name), "--strict"]).code, 1);
        let report = run(&["limits", "lint", &dir.path(name), "--json"]).json();
        assert!(report["warnings"][0].as_str().expect("a warning").contains(warning), "{report}");
    }
}

const OLD: &str = "schema:\n  a:\n    limits:\n      - gcra: { burst: 9, count: 1, period: 1s }\n      - fixed_window: { \
                   count: 50, period: 1h }\n        name: hourly\n";

#[test]
fn a_limit_that_never_refuses_is_a_warning() {
    let nested = |head: &str, above: &str, below: &str| {
        format!("{head}schema: {{ u: {{ limits: [{above}], children: {{ '*': {{ limits: [{below}] }} }} }} }}")
    };
    let (gcra, window) =
        ("{ gcra: { burst: 9, count: 1, period: 1s } }", "{ fixed_window: { count: 69, period: 1m } }");
    let of_window = "`u/*#fixed_window0` { count: 69, period: 1m } never refuses: `u#gcra0` { burst: 9, count: 1, \
                     period: 1s }, which is charged for the same requests, admits no more";
    let shadow = "{ gcra: { burst: 9, count: 1, period: 1s }, shadow: true }";
    for (policy, warning) in [
        (nested("", gcra, window), Some(of_window)),
        // The child is the stricter limit. Other keys may leave less of the parent.
        (nested("", window, gcra), None),
        // A burst that the parent refuses, with a rate that it admits, and the other way round.
        (nested("", gcra, "{ fixed_window: { count: 68, period: 1m } }"), None),
        (nested("", gcra, "{ gcra: { burst: 9, count: 59, period: 1m } }"), None),
        (nested("", gcra, "{ gcra: { burst: 8, count: 60, period: 1m } }"), None),
        // The child is charged for requests that the parent refuses.
        (nested("charge: independent\n", gcra, window), None),
        (nested("", gcra, "{ fixed_window: { count: 69, period: 1m, charge_denied: true } }"), None),
        (nested("", shadow, window), None),
        // A shadow limit that precedes the limit next to it.
        (
            nested("", window, &format!("{gcra}, {shadow}")),
            Some("`u/*#gcra1` { burst: 9, count: 1, period: 1s } never"),
        ),
        (nested("", window, &format!("{shadow}, {gcra}")), None),
        (
            format!("schema: {{ a: {{ limits: [{gcra}, {window}] }} }}"),
            Some("`a#fixed_window0` { count: 69, period: 1m }"),
        ),
        (
            format!("schema: {{ a: {{ limits: [{window}, {gcra}] }} }}"),
            Some("`a#fixed_window0` { count: 69, period: 1m }"),
        ),
        (format!("schema: {{ a: {{ limits: [{gcra}] }}, b: {{ limits: [{window}] }} }}"), None),
        // A factor lifts the parent's limits for its children.
        (
            format!("schema: {{ a: {{ factor: 0, limits: [{gcra}], children: {{ b: {{ limits: [{window}] }} }} }} }}"),
            None,
        ),
        // Half of the child's limit is as strict as the parent.
        (
            format!(
                "schema: {{ a: {{ limits: [{gcra}], children: {{ b: {{ factor: 2, limits: [[18, 2, 1]] }} }} }} }}"
            ),
            Some("`a/b#gcra0` { burst: 9, count: 1, period: 1s } never refuses"),
        ),
    ] {
        let dir = Folder::of(&[("limits.yaml", &policy)]);
        let report = run(&["limits", "lint", &dir.path("limits.yaml"), "--json"]).json();
        let report: Vec<String> = serde_json::from_value(report["warnings"].clone()).expect("a list");
        let never: Vec<_> = report.iter().filter(|line| line.contains("never refuses")).collect();
        match warning {
            Some(warning) => assert!(never.len() == 1 && never[0].contains(warning), "{policy}: {report:?}"),
            None => assert!(never.is_empty(), "{policy}: {report:?}"),
        }
    }
}

#[test]
fn a_factor_that_divides_no_limit_is_a_warning() {
    let users = |alex: &str| {
        let any = "'*': { limits: [[9, 1, 1]], children: { trade: { limits: [[3, 1, 1]] } } }";
        format!("schema: {{ user: {{ limits: [[99, 1, 1]], children: {{ {any}, alex: {{ {alex} }} }} }} }}")
    };
    for (alex, warned) in [
        ("factor: 0.1", true),
        ("factor: 0.1, children: { trade: {} }", true),
        // The limit that it would divide is lifted.
        ("factor: 2, children: { trade: { factor: 0, limits: [[3, 1, 1]] } }", true),
        ("factor: 0.1, limits: [[9, 1, 1]]", false),
        ("factor: 0.1, children: { trade: { limits: [[3, 1, 1]] } }", false),
        // These lift the limits, and change nothing on purpose.
        ("factor: 0", false),
        ("factor: 1", false),
        ("", false),
    ] {
        let dir = Folder::of(&[("limits.yaml", &users(alex))]);
        let linted = run(&["limits", "lint", &dir.path("limits.yaml")]);
        let warning = "warning: default domain: the factor of `user/alex` changes nothing: ";
        assert_eq!((linted.code, linted.out.matches(warning).count()), (0, usize::from(warned)), "{alex}: {linted:?}");
    }
    let lifted = "trade: { factor: 0, limits: [[3, 1, 1]] }";
    for (children, cause) in [
        ("alex: { factor: 2 }".to_owned(), "there are none\n"),
        ("alex: { factor: 2 }, '*': {}".to_owned(), "there are none (limits of a sibling `*` do not apply to it)\n"),
        (format!("alex: {{ factor: 2, children: {{ {lifted} }} }}"), "a factor of 0 lifts all of them\n"),
    ] {
        let dir = Folder::of(&[("limits.yaml", &format!("schema: {{ {children} }}"))]);
        let linted = run(&["limits", "lint", &dir.path("limits.yaml")]);
        let warning =
            format!("the factor of `alex` changes nothing: it divides limits at this node and below, and {cause}");
        assert!(linted.out.contains(&warning), "{children}: {linted:?}");
    }
}

#[test]
fn lint_warns_of_slots_that_cannot_be_taken() {
    let (slots, units) = ("concurrency: { max: 1, ttl: 1s }", "gcra: { burst: 9, count: 1, period: 1s }");
    let queue = "leaky_queue: { count: 1, period: 1s, burst: 9 }";
    let policy = |head: &str, limit: &str, below: &str| {
        let below = format!("children: {{ '*': {{ limits: [{{ {below} }}] }} }}");
        format!("{head}schema: {{ a: {{ limits: [{{ {limit} }}], {below} }} }}")
    };
    for (policy, warning) in [
        (policy("", units, slots), None),
        (
            policy("", queue, slots),
            Some("`a/*#concurrency0` can be taken: keys that meet `a#leaky_queue0` cannot be reserved: "),
        ),
        (
            policy("", slots, queue),
            Some("`a#concurrency0` can be taken: keys that meet `a/*#leaky_queue0` cannot be reserved: "),
        ),
        (policy("charge: independent\n", units, slots), Some("`a/*#concurrency0` can be taken: charge is independent")),
    ] {
        let dir = Folder::of(&[("limits.yaml", &policy)]);
        let linted = run(&["limits", "lint", &dir.path("limits.yaml")]);
        let said = linted.out.lines().find_map(|line| line.split("no slot of ").nth(1));
        assert!(linted.code == 0 && said.is_some() == warning.is_some(), "{policy}: {linted:?}");
        assert!(said.unwrap_or_default().starts_with(warning.unwrap_or_default()), "{policy}: {linted:?}");
    }
}

/// Returns the counts that a change from [`OLD`] to `new` discards.
fn forgotten(new: &str) -> Vec<String> {
    let dir = Folder::of(&[("old.yaml", OLD), ("new.yaml", new)]);
    let (old, new) = (dir.path("old.yaml"), dir.path("new.yaml"));
    let args = ["limits", "lint", &new, "--against", &old];
    let text = run(&args);
    assert_eq!(text.code, 0, "{text:?}");
    let report = run(&[&args[..], &["--json"]].concat()).json();
    let report: Vec<String> = serde_json::from_value(report["forgotten"].clone()).expect("a list");
    let lines: Vec<_> = text.out.lines().filter_map(|line| line.strip_prefix("forgets: ")).collect();
    assert_eq!(lines, report);
    assert_eq!(report.is_empty(), text.out.contains("forgets nothing"));
    assert_eq!(run(&[&args[..], &["--strict"]].concat()).code, i32::from(!report.is_empty()));
    report
}

#[test]
fn changed_counts_and_rates_forget_nothing() {
    assert_eq!(forgotten(OLD), [""; 0]);
    assert_eq!(forgotten(&OLD.replace("burst: 9, count: 1, period: 1s", "burst: 2, count: 7, period: 1m")), [""; 0]);
    assert_eq!(forgotten(&OLD.replace("count: 50", "count: 500")), [""; 0]);
    let swapped = "schema:\n  a:\n    limits:\n      - fixed_window: { count: 50, period: 1h }\n        name: hourly\n      \
                   - gcra: { burst: 9, count: 1, period: 1s }\n";
    assert_eq!(forgotten(swapped), [""; 0], "the order among other kinds is no part of it");
}

#[test]
fn lint_against_reports_forgotten_counts() {
    let gone = "schema: { a: { limits: [{ gcra: { burst: 9, count: 1, period: 1s } }] } }";
    for (new, limit, why) in [
        (OLD.replace("1h", "2h"), "hourly", "no limit at `a` continues its count"),
        (OLD.replace("hourly", "per-hour"), "hourly", "no limit at `a` continues its count"),
        (gone.to_owned(), "hourly", "no limit at `a` continues its count"),
        (OLD.replace("gcra: { burst: 9,", "token_bucket: { capacity: 9,"), "a#gcra0", "no limit at `a` continues"),
    ] {
        let report = forgotten(&new);
        assert_eq!(report.len(), 1, "{report:?}");
        assert!(report[0].starts_with(&format!("default domain: `{limit}`: {why}")), "{report:?}");
    }
    let report = forgotten(&OLD.replace("  a:", "  b:"));
    assert!(report.len() == 2 && report.iter().all(|line| line.ends_with("`a` was removed")), "{report:?}");
    let report = forgotten(&format!("domain: api\n{OLD}"));
    assert!(report.len() == 2 && report.iter().all(|line| line.ends_with("its domain was removed")), "{report:?}");
}

/// Returns the counts of limits at `a` that move, and those that are discarded, when `new` replaces `old`.
fn changes(old: &str, new: &str) -> [Vec<String>; 2] {
    let node = |limits: &str| format!("schema: {{ a: {{ limits: [{limits}] }} }}");
    let dir = Folder::of(&[("old.yaml", &node(old)), ("new.yaml", &node(new))]);
    let args = ["limits", "lint", &dir.path("new.yaml"), "--against", &dir.path("old.yaml")];
    let (text, report) = (run(&args), run(&[&args[..], &["--json"]].concat()).json());
    ["moved", "forgotten"].map(|kind| {
        let report: Vec<String> = serde_json::from_value(report[kind].clone()).expect("a list");
        let prefix = if kind == "moved" { "moves: " } else { "forgets: " };
        assert!(text.out.lines().filter_map(|line| line.strip_prefix(prefix)).eq(&report), "{}", text.out);
        report.iter().map(|line| line.replace("default domain: ", "")).collect()
    })
}

#[test]
fn lint_against_an_unreadable_policy_is_an_error_in_json_too() {
    let dir = Folder::of(&[("new.yaml", "schema: { user: { limits: [1, 1, 1] } }")]);
    let args = ["limits", "lint", &dir.path("new.yaml"), "--against", &dir.path("none.yaml")];
    let told = run(&args);
    assert!(told.code == 2 && told.err.contains("none.yaml"), "{told:?}");
    let report = run(&[&args[..], &["--json"]].concat());
    assert_eq!((report.code, &report.json()["valid"]), (2, &json!(false)));
    assert!(report.json()["errors"][0]["file"].as_str().is_some_and(|file| file.ends_with("none.yaml")), "{report:?}");
}

#[test]
fn lint_against_reports_moved_counts() {
    let second = "{ gcra: { burst: 9, count: 10, period: 1s } }";
    let day = "{ gcra: { burst: 4999, count: 5000, period: 1d } }";
    let shown = |limit: &str| limit.replace("{ gcra: ", "").replace(" } }", " }");
    let both = |first: &str, then: &str| format!("{first}, {then}");
    let none: [Vec<String>; 2] = Default::default();
    assert_eq!(changes(second, second), none);

    let tuned = second.replace("count: 10", "count: 20");
    let line = format!("`a#gcra0`: {} continues as `a#gcra0` {}", shown(second), shown(&tuned));
    assert_eq!(changes(second, &tuned), [vec![line], vec![]]);

    let line = format!("`a#gcra0`: {0} continues as `a#gcra1` {0}", shown(day));
    assert_eq!(changes(day, &both(second, day)), [vec![line.clone()], vec![]]);
    let back = line.replace("`a#gcra0`:", "`a#gcra1`:").replace("as `a#gcra1`", "as `a#gcra0`");
    let [moved, forgotten] = changes(&both(second, day), day);
    assert!(moved.iter().eq([&back]), "{moved:?}");
    assert!(forgotten.len() == 1 && forgotten[0].starts_with("`a#gcra0`: no limit at `a` continues"), "{forgotten:?}");
    let swapped = changes(&both(second, day), &both(day, second));
    assert_eq!(swapped, [vec![line.replace(&shown(day), &shown(second)), back], vec![]]);

    // A limit with a longer period takes the first place, and lint reports that.
    let [moved, forgotten] = changes(second, &both(second, day));
    assert_eq!(moved, [format!("`a#gcra0`: {} continues as `a#gcra1` {}", shown(second), shown(day))]);
    assert_eq!(forgotten, [format!("`a#gcra0`: `a#gcra1` {} takes over its count", shown(day))]);
    let named = day.replace("} }", "}, name: daily }");
    let line = format!("`a#gcra0`: {0} continues as `a#gcra1` {0}", shown(second));
    assert_eq!(changes(second, &both(&named, second)), [vec![line], vec![]]);
}

#[test]
fn unnamed_limits_of_the_same_kind_are_a_warning() {
    let dir = Folder::of(&[(
        "two.yaml",
        "schema: { a: { limits: [[1, 1, 1], [9, 9, 60], { fixed_window: { count: 9, period: 60s } }] } }",
    )]);
    let report = run(&["limits", "lint", &dir.path("two.yaml")]);
    let warning =
        "warning: default domain: `a#gcra0` and `a#gcra1` have no names, so their counts may move between them";
    assert!(report.code == 0 && report.out.contains(warning), "{report:?}");
}

#[test]
fn a_changed_anchor_forgets_counts_below_the_lower_anchor() {
    let deep = |anchor: u8| {
        format!(
            "anchor: {anchor}\nschema: {{ a: {{ limits: [1, 1, 1], children: {{ b: {{ limits: [1, 1, 1] }} }} }} }}"
        )
    };
    let (one, two, three) = (deep(1), deep(2), deep(3));
    let of_requests = |domain: &str, lower: u8, from: u8, to: u8| {
        format!(
            "{domain}: limits in requests (`limit_spec`) deeper than {lower}: anchor changes from {from} to {to}, so their counts are kept elsewhere"
        )
    };
    // Keys of an unknown domain have the anchor 2.
    let [api, other] = ["api", "other"].map(|name| format!("domain: {name}\nanchor: 32\nschema: {{}}"));
    let of_policy =
        "default domain: `a/b#gcra0`: anchor changes from 2 to 1, so its count is kept elsewhere".to_owned();
    let of_policy_alone = of_policy.clone();
    for (old, new, lost) in [
        (&two, &one, &[of_policy, of_requests("default domain", 1, 2, 1)][..]),
        (&two, &three, &[of_requests("default domain", 2, 2, 3)]),
        (&api, &other, &[of_requests("domain `api`", 2, 32, 2), of_requests("domain `other`", 2, 2, 32)]),
        (&api, &api.replace("32", "2"), &[of_requests("domain `api`", 2, 32, 2)]),
        (&api.replace("32", "2"), &two, &[]),
        // No requests have limits there, before or after.
        (&two, &format!("limit_spec: deny\n{one}"), &[of_policy_alone]),
        (&format!("{api}\nlimit_spec: deny"), &two, &[]),
    ] {
        let dir = Folder::of(&[("old.yaml", old), ("new.yaml", new)]);
        let report = run(&["limits", "lint", &dir.path("new.yaml"), "--against", &dir.path("old.yaml"), "--json"]);
        assert_eq!(report.json()["forgotten"], json!(lost), "{old} to {new}");
    }
}
