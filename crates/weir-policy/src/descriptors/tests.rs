//! Valid and invalid files.

use serde_json::json;

use super::{Rule, ValuePattern, file, resolve};
use crate::{Domain, Rules, load, load::document_of};
use weir_core::domain::{Charge, OnStoreFailure};

pub fn read(text: &str) -> Result<Domain, String> {
    let document = document_of(text).map_err(|problems| text_of(&problems))?.expect("a document");
    file::read(&document, &Rules::default()).map_err(|problems| text_of(&problems))
}

fn text_of(problems: &weir_settings::Problems) -> String {
    let line = |problem: &weir_settings::Problem| format!("{}: {}", problem.mark.line, problem.message);
    problems.0.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the limits that a descriptor meets, each as its name and parameters.
pub fn limits(domain: &Domain, entries: &[(&str, &str)]) -> Vec<String> {
    let matched = resolve(domain, domain.descriptors.as_deref().unwrap(), entries.iter().copied());
    let shown = |limit: &weir_core::plan::Limit| format!("{} {}", limit.name, limit.params.describe());
    matched.into_iter().flat_map(|matched| matched.limits.iter().map(shown)).collect()
}

pub fn rule<'a>(domain: &'a Domain, entries: &'a [(&str, &str)]) -> &'a Rule {
    resolve(domain, domain.descriptors.as_deref().unwrap(), entries.iter().copied()).expect("a rule").rule
}

/// Returns a file with one `rate_limit`, which is on line 4.
fn one(rate_limit: &str) -> String {
    format!("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {rate_limit}")
}

#[test]
fn errors_have_the_line_number() {
    let minute = "{ unit: minute, requests_per_unit: 1 }";
    let with = |keys: &str| one(&format!("{{ unit: day, requests_per_unit: 1, {keys} }}"));
    let nested = |depth: usize| {
        let open: String = (0..depth)
            .map(|level| format!("{}- key: k\n{}  descriptors:\n", "  ".repeat(level), "  ".repeat(level)))
            .collect();
        format!("domain: d\ndescriptors:\n{open}")
    };
    for (text, expected) in [
        // Errors of envoyproxy/ratelimit.
        ("domain: d\ndescriptors: [".to_owned(), "not valid YAML"),
        ("domain: d\ndescriptors:\n  - ke: k".to_owned(), "3: unknown key `ke`; did you mean `key`?"),
        ("domain: d\ndescriptors:\n  - 7: k".to_owned(), "3: unknown key `7`"),
        (
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: { unit: day, rpu: 1 }".to_owned(),
            "4: unknown key `rpu`",
        ),
        ("domain: d\ndescriptors:\n  - key".to_owned(), "3: a descriptor must be a map"),
        ("domain: d\ndescriptors:\n  - [key]".to_owned(), "3: a descriptor must be a map"),
        ("domain: d\ndescriptors: { key: k }".to_owned(), "2: descriptors must be a list of maps, not a map"),
        ("descriptors:\n  - key: k".to_owned(), "1: descriptors need their domain's name"),
        ("domain: ''\ndescriptors:\n  - key: k".to_owned(), "1: descriptors need their domain's name"),
        ("domain: d\ndescriptors:\n  - value: v".to_owned(), "3: a descriptor needs a key that is not empty"),
        ("domain: d\ndescriptors:\n  - key: ''".to_owned(), "3: a descriptor needs a key that is not empty"),
        ("domain: d\ndescriptors:\n  - key: k\n  - key: k".to_owned(), "4: duplicate descriptor `k without a value`"),
        (
            "domain: d\ndescriptors:\n  - { key: k, value: v }\n  - { key: k, value: v }".to_owned(),
            "4: duplicate descriptor `k/v`",
        ),
        (
            "domain: d\ndescriptors:\n  - { key: k, value: v* }\n  - { key: k, value: v* }".to_owned(),
            "4: duplicate descriptor `k/v*`",
        ),
        (
            "domain: d\ndescriptors:\n  - key: k\n    descriptors:\n      - key: l\n      - key: l".to_owned(),
            "6: duplicate descriptor `l without a value`",
        ),
        (one("{ unit: fortnight, requests_per_unit: 1 }"), "4: unknown unit `fortnight`; known are second, minute"),
        (one("{ unit: unknown, requests_per_unit: 1 }"), "4: unknown unit `unknown`"),
        (one("{ unit: '', requests_per_unit: 1 }"), "4: unknown unit ``"),
        (
            one("{ requests_per_unit: 1 }"),
            "4: a rate_limit has a unit (second, minute, hour, day, week, month, year), a period",
        ),
        (one("{ unlimited: true, unit: day }"), "4: an unlimited rate_limit has no unit"),
        (with("replaces: [{ name: '' }]"), "4: an entry of replaces needs a name"),
        (with("replaces: [{ }]"), "4: an entry of replaces needs a name"),
        (with("replaces: [{ nam: a }]"), "4: unknown key `nam`; did you mean `name`?"),
        (with("replaces: [a]"), "4: an entry of replaces must be a map with a name"),
        (with("replaces: a"), "4: replaces must be a list of maps"),
        (with("name: a, replaces: [{ name: a }]"), "4: a limit cannot replace one of its own descriptor"),
        (
            "domain: d\ndescriptors:\n  - { key: k, share_threshold: true }".to_owned(),
            "3: share_threshold is for values with a `*`",
        ),
        (
            "domain: d\ndescriptors:\n  - { key: k, value: v, share_threshold: true }".to_owned(),
            "3: share_threshold is for values with a `*`; the value of `k/v` has none",
        ),
        ("domain: d\ndescriptors:\n  - { key: k, metadata: [1] }".to_owned(), "3: metadata must be a map, not a list"),
        (
            one("{ unit: day, requests_per_unit: -1 }"),
            "4: requests_per_unit must be a whole number from 0 to 4294967295",
        ),
        (one("{ unit: day, requests_per_unit: 4294967296 }"), "4: requests_per_unit must be a whole number"),
        (one("{ unit: day, requests_per_unit: 1.5 }"), "4: requests_per_unit must be a whole number"),
        (one("{ unit: day, requests_per_unit: many }"), "4: requests_per_unit must be a whole number"),
        (
            "domain: d\ndescriptors:\n  - { key: k, shadow_mode: perhaps }".to_owned(),
            "3: shadow_mode must be true or false",
        ),
        ("domain: d\ndescriptors:\n  - { key: [k] }".to_owned(), "3: key must be a string, not a list"),
        ("domain: d\ndescriptors:\n  - { key: k, value: { a: b } }".to_owned(), "3: value must be a string, not a map"),
        (one("5"), "4: rate_limit must be a map or a list of them, not a single value"),
        // Extensions of Weir.
        (format!("domain: {}\ndescriptors: []", "d".repeat(1_025)), "1: domain must be a string of at most 1024 bytes"),
        (
            "domain: d\ncharge: all\ndescriptors: []".to_owned(),
            "2: charge must be `all_or_nothing`, `independent` or `over_limit_only`, not `all`",
        ),
        (
            "domain: d\non_store_failure: alow\ndescriptors: []".to_owned(),
            "2: on_store_failure must be `local`, `allow`, `deny` or `error`, not `alow`",
        ),
        ("domain: d\nanchor: 33\ndescriptors: []".to_owned(), "2: anchor must be a number of segments, 1 to 32"),
        ("domain: d\nschema: {}\ndescriptors: []".to_owned(), "2: unknown key `schema`"),
        (nested(17), "descriptors nest at most 16 deep"),
        (one(&format!("[{}]", vec![minute; 17].join(", "))), "4: 17 limits on one descriptor; at most 16"),
        (one(&format!("[{minute}, {{ unlimited: true }}]")), "4: an unlimited descriptor cannot have a limit"),
        (
            one("[{ unit: day, requests_per_unit: 1, name: a }, { unit: hour, requests_per_unit: 1, name: a }]"),
            "4: duplicate limit name `a` in one descriptor",
        ),
        (with("name: \"a\\tb\""), "4: a name must be 1 to 4096 bytes without control characters"),
        (with("unit_multiplier: 0"), "4: unit_multiplier must be a whole number from 1"),
        (
            one("{ unit: year, requests_per_unit: 1, unit_multiplier: 2 }"),
            "4: unit_multiplier must be a whole number from 1",
        ),
        (with("period: 1d"), "4: period and unit exclude each other"),
        (
            one("{ unit_multiplier: 2, requests_per_unit: 1, period: 1d }"),
            "4: period and unit_multiplier exclude each other",
        ),
        (one("{ requests_per_unit: 1, period: soon }"), "4: `soon` is not a duration"),
        (one("{ requests_per_unit: 1, period: 32d }"), "4: period must be 1us to 31d (the setting max_period"),
        (with("burst: 5"), "4: `burst` is for an algorithm; name it"),
        (with("algorithm: gcr"), "4: unknown algorithm `gcr`; did you mean `gcra`?"),
        (with("algorithm: [gcra]"), "4: unknown algorithm ``"),
        (with("algorithm: sliding_buckets"), "4: sliding_buckets: resolution is missing"),
        (with("algorithm: gcra, brst: 1"), "4: unknown key `brst`; did you mean `burst`?"),
        (with("algorithm: gcra, count: 2"), "4: unknown key `count`"),
        (with("algorithm: gcra, burst: [5]"), "4: burst must be a single value, not a list"),
        (one("{ unit: day, algorithm: gcra, burst: 1 }"), "4: gcra needs requests_per_unit"),
        (one("{ unit: day, requests_per_unit: 0, algorithm: gcra, burst: 1 }"), "4: gcra: count must be 1 to 2^32"),
        (one("{ unlimited: true, algorithm: gcra }"), "4: an unlimited rate_limit has no algorithm"),
        (
            one("{ algorithm: { gcra: { burst: 1, count: 1, period: 1s } }, unit: day }"),
            "4: the algorithm is written in full; leave unit out",
        ),
        (one("{ algorithm: { gcra: { burst: 1, count: 1 } } }"), "4: gcra: period is missing"),
        (one("{ algorithm: { gcrb: { burst: 1, count: 1 } } }"), "4: unknown algorithm `gcrb`; did you mean `gcra`?"),
        (one("{ algorithm: { } }"), "4: algorithm must be a name, or a map from one name to its parameters"),
    ] {
        let error = read(&text).expect_err(&text);
        assert!(error.contains(expected), "{text}\n{error}\nexpected {expected}");
    }
}

#[test]
fn rate_limits_become_fixed_windows_of_their_unit() {
    for (rate_limit, expected) in [
        ("{ unit: second, requests_per_unit: 7 }", "k/*#fixed_window0 { count: 7, period: 1s, charge_denied: true }"),
        ("{ unit: MINUTE, requests_per_unit: 7 }", "k/*#fixed_window0 { count: 7, period: 1m, charge_denied: true }"),
        ("{ unit: Hour, requests_per_unit: 7 }", "k/*#fixed_window0 { count: 7, period: 1h, charge_denied: true }"),
        ("{ unit: day, requests_per_unit: 7 }", "k/*#fixed_window0 { count: 7, period: 1d, charge_denied: true }"),
        ("{ unit: week, requests_per_unit: 7 }", "k/*#fixed_window0 { count: 7, period: 7d, charge_denied: true }"),
        ("{ unit: month, requests_per_unit: 7 }", "k/*#fixed_window0 { count: 7, period: 30d, charge_denied: true }"),
        (
            "{ unit: year, requests_per_unit: 4294967295 }",
            "k/*#fixed_window0 { count: 4294967295, period: 365d, charge_denied: true }",
        ),
        ("{ unit: day, requests_per_unit: 1_000, name: n }", "n { count: 1000, period: 1d, charge_denied: true }"),
        (
            "{ unit: day, requests_per_unit: 1, name: '' }",
            "k/*#fixed_window0 { count: 1, period: 1d, charge_denied: true }",
        ),
        ("{ unit: day }", "k/*#fixed_window0 { count: 0, period: 1d, charge_denied: true }"),
        (
            "{ unit: minute, requests_per_unit: 1, unit_multiplier: 5 }",
            "k/*#fixed_window0 { count: 1, period: 5m, charge_denied: true }",
        ),
        (
            "{ unit: month, requests_per_unit: 1, unit_multiplier: 12 }",
            "k/*#fixed_window0 { count: 1, period: 360d, charge_denied: true }",
        ),
        ("{ requests_per_unit: 1, period: 30s }", "k/*#fixed_window0 { count: 1, period: 30s, charge_denied: true }"),
        (
            "{ unit: minute, requests_per_unit: 9, algorithm: fixed_window }",
            "k/*#fixed_window0 { count: 9, period: 1m }",
        ),
        (
            "{ unit: minute, requests_per_unit: 9, algorithm: fixed_window, per_key_phase: true }",
            "k/*#fixed_window0 { count: 9, period: 1m, per_key_phase: true }",
        ),
        (
            "{ unit: minute, requests_per_unit: 9, algorithm: gcra, burst: 5 }",
            "k/*#gcra0 { burst: 5, count: 9, period: 1m }",
        ),
        (
            "{ unit: year, requests_per_unit: 9, algorithm: token_bucket, capacity: 2 }",
            "k/*#token_bucket0 { capacity: 2, count: 9, period: 365d }",
        ),
        (
            "{ period: 10s, requests_per_unit: 9, algorithm: token_bucket, capacity: 2 }",
            "k/*#token_bucket0 { capacity: 2, count: 9, period: 10s }",
        ),
        (
            "{ algorithm: { gcra: { burst: 5, count: 10, period: 1s } }, name: n }",
            "n { burst: 5, count: 10, period: 1s }",
        ),
    ] {
        let domain = read(&one(rate_limit)).unwrap_or_else(|error| panic!("{rate_limit}: {error}"));
        assert_eq!(limits(&domain, &[("k", "v")]), [expected], "{rate_limit}");
    }
}

#[test]
fn a_descriptor_can_have_several_limits() {
    let domain =
        read(&one("[{ unit: second, requests_per_unit: 1 }, { unit: day, requests_per_unit: 9, name: daily }]"))
            .unwrap();
    assert_eq!(
        limits(&domain, &[("k", "v")]),
        [
            "k/*#fixed_window0 { count: 1, period: 1s, charge_denied: true }",
            "daily { count: 9, period: 1d, charge_denied: true }"
        ]
    );
    let rule = rule(&domain, &[("k", "v")]);
    assert_eq!(rule.limits.iter().map(|limit| &*limit.kind).collect::<Vec<_>>(), ["fixed_window0", "daily"]);
}

#[test]
fn a_file_with_only_a_domain_is_one_of_descriptors() {
    let rules = Rules { descriptors_on_store_failure: OnStoreFailure::Error, ..Rules::default() };
    for (text, is_one) in [
        ("domain: d", true),
        ("domain: d\nname: odd", true),
        ("domain: d\nschema: {}", false),
        ("domain: d\non_store_failure: error\ncharge: independent", false),
        ("{}", false),
    ] {
        let policy = load::parse(text, &rules).unwrap();
        let domain = policy.domains().next().unwrap();
        let read = (domain.descriptors.is_some(), domain.charge, domain.on_store_failure);
        assert!(read == (is_one, Charge::Independent, OnStoreFailure::Error) || !is_one && !read.0, "{text}: {read:?}");
    }
    assert!(
        load::parse("domain: ''", &rules).unwrap_err().to_string().contains("descriptors need their domain's name")
    );
}

#[test]
fn a_file_overrides_the_rule_for_a_store_that_fails() {
    let rules = Rules { descriptors_on_store_failure: OnStoreFailure::Error, ..Rules::default() };
    for (file, expected) in [("", OnStoreFailure::Error), ("on_store_failure: local\n", OnStoreFailure::Local)] {
        let document = document_of(&format!("domain: d\n{file}descriptors: []")).unwrap().unwrap();
        assert_eq!(file::read(&document, &rules).unwrap().on_store_failure, expected);
    }
}

#[test]
fn options_next_to_limits_are_kept() {
    let text = "
domain: d
charge: independent
on_store_failure: deny
descriptors:
  - key: k
    value: a*b
    shadow_mode: yes
    quota_mode: TRUE
    detailed_metric: on
    value_to_metric: true
    share_threshold: true
    rate_limit: { unit: day, requests_per_unit: 1, name: n, replaces: [{ name: x }, { name: y }] }
    metadata:
      number: 5
      real: 1.5
      text: '5'
      name: five
      truth: true
      nothing: ~
      list: [1, { key: unknown }]
  - { key: 7, value: 8, rate_limit: { unlimited: true, unit: whatever } }
  - { key: k, value: true }
  - { key: k, value: ~, rate_limit: ~, metadata: ~, descriptors: ~ }
";
    let domain = read(text).unwrap();
    assert_eq!(
        (domain.charge, domain.on_store_failure, &*domain.name),
        (Charge::Independent, OnStoreFailure::Deny, "d")
    );
    let rule_of = |entries| rule(&domain, entries).clone();
    let all = rule_of(&[("k", "a-b")]);
    assert_eq!(all.value, ValuePattern::Pattern("a*b".into()));
    assert!(all.shadow && all.quota && all.detailed_metric && all.value_to_metric && all.share_threshold);
    assert_eq!(all.limits[0].replaces.iter().map(|name| &**name).collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(
        all.metadata,
        Some(json!({ "number": 5, "real": 1.5, "text": "5", "name": "five", "truth": true, "nothing": null,
            "list": [1, { "key": "unknown" }] }))
    );
    let unlimited = rule_of(&[("7", "8")]);
    assert!(unlimited.unlimited && limits(&domain, &[("7", "8")]).is_empty());
    assert_eq!(rule_of(&[("k", "true")]).value, ValuePattern::Exact("true".into()));
    let none = rule_of(&[("k", "else")]);
    assert!(none.value == ValuePattern::Any && none.limits.is_empty() && none.metadata.is_none());
}

#[test]
fn misplaced_keys_are_ignored_and_noted() {
    let domain = read("domain: d\nunit: day\ndescriptors:\n  - key: k*\n    unit: day\n    rate_limit: { unit: day, shadow_mode: true }").unwrap();
    let notes = domain.descriptors.as_ref().unwrap().notes();
    let notes: Vec<_> = notes.iter().map(|note| format!("{}: {}", note.mark.line, note.message)).collect();
    assert_eq!(
        notes,
        [
            "2: `unit` is ignored here",
            "5: `unit` is ignored here",
            "4: the key `k*` cannot be a pattern; only a value can",
            "6: requests_per_unit is missing: nothing is allowed",
            "6: `shadow_mode` is ignored here",
        ]
    );
}

#[test]
fn all_or_nothing_charges_nothing_on_a_refusal() {
    let text = "domain: d\ncharge: all_or_nothing\ndescriptors:\n  - { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n  - { key: b, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }";
    let domain = read(text).unwrap();
    assert_eq!(limits(&domain, &[("a", "")]), ["a/*#fixed_window0 { count: 1, period: 1d }"]);
    let shadows = |entries, domain: &Domain| {
        let matched = resolve(domain, domain.descriptors.as_deref().unwrap(), <[_]>::iter(entries).copied()).unwrap();
        (matched.limits[0].shadow, matched.rule.combined_limits(matched.limits)[0].shadow)
    };
    assert_eq!((shadows(&[("a", "")], &domain), shadows(&[("b", "")], &domain)), ((false, true), (true, true)));
    let theirs = read(&text.replace("all_or_nothing", "independent")).unwrap();
    assert_eq!((shadows(&[("a", "")], &theirs), shadows(&[("b", "")], &theirs)), ((false, false), (true, false)));
}

#[test]
fn files_of_one_domain_are_merged_when_enabled() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let rules = Rules { merge_domains: true, ..Rules::default() };
    let merged = || load(dir.path(), &rules).map_err(|problems| problems.to_string());
    write(
        "a.yaml",
        "domain: d\ndescriptors:\n  - { key: k, value: a, rate_limit: { unit: day, requests_per_unit: 1 } }",
    );
    write(
        "b.yaml",
        "domain: d\nname: odd\ndescriptors:\n  - { key: k, rate_limit: { unit: day, requests_per_unit: 2 } }",
    );
    write("c.yaml", "domain: e");
    write("d.yaml", "domain: e\ndescriptors: []");
    let refused = load(dir.path(), &Rules::default()).unwrap_err().to_string();
    for also in ["b.yaml: domain `d` is also defined in", "d.yaml: domain `e` is also defined in"] {
        assert!(refused.contains(also), "{refused}");
    }
    assert_eq!(refused.matches("envoy.merge_domains").count(), 2, "{refused}");
    let loaded = merged().unwrap();
    assert_eq!((loaded.policy.domains().count(), loaded.policy.limit_count()), (2, 2));
    let domain = loaded.policy.domain("d").unwrap();
    assert_eq!(limits(domain, &[("k", "a")]).len() + limits(domain, &[("k", "b")]).len(), 2);
    let notes = domain.descriptors.as_ref().unwrap().notes();
    assert!(notes.len() == 1 && notes[0].to_string().contains("b.yaml:2:1: `name` is ignored"), "{notes:?}");

    write("b.yaml", "domain: d\ndescriptors:\n  - key: l\n  - { key: k, value: a, descriptors: [{ key: l }] }");
    let error = merged().unwrap_err();
    assert!(error.contains("b.yaml:4:5: duplicate descriptor `k/a`"), "{error}");
    write("b.yaml", "domain: d\ncharge: all_or_nothing\ndescriptors: []");
    assert!(merged().unwrap_err().contains("b.yaml:1:1: the files of one domain must have the same charge"));
    write("b.yaml", "domain: d\nschema: {}");
    let error = merged().unwrap_err();
    assert!(error.contains("; define it once") && !error.contains("merge_domains"), "{error}");
}

#[test]
fn limits_keep_their_index_among_others() {
    let dir = tempfile::tempdir().unwrap();
    let text = "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day } }\n  - { key: b, shadow_mode: true, rate_limit: { unit: day } }";
    std::fs::write(dir.path().join("a.yaml"), text).unwrap();
    let policy = load(dir.path(), &Rules::default()).unwrap().policy;
    let domain = policy.domain("d").unwrap();
    for (key, index) in [("a", 0), ("b", 1)] {
        let entries = [(key, "")];
        let matched = resolve(domain, domain.descriptors.as_deref().unwrap(), entries.iter().copied()).unwrap();
        assert_eq!(matched.rule.combined_limits(matched.limits)[0].index, index);
    }
}
