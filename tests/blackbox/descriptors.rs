//! Files of envoyproxy/ratelimit: `weir limits lint` and `weir limits explain`.

use serde_json::json;
use weir::proto::{CheckRequest, ResetRequest};
use weir_envoy::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride},
    service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code},
    r#type::v3::RateLimitUnit,
};

use crate::support::{
    Folder, Server,
    envoy::{descriptor, should_rate_limit},
    requests::{check, gcra, reset, with_limits},
    run, run_with,
};

const FILE: &str = "domain: d
descriptors:
  - key: user
    value: 'a*'
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 5 }
    descriptors:
      - key: path
        shadow_mode: true
        rate_limit: [{ unit: minute, requests_per_unit: 2, name: short, replaces: [{ name: x }] }, { period: 30s, requests_per_unit: 9 }]
  - { key: user, value: root, rate_limit: { unlimited: true } }
  - { key: user }
";

#[test]
fn lint_reports_ignored_fields_and_merges_domains_only_on_request() {
    let dir = Folder::of(&[("a.yaml", FILE), ("b.yaml", "domain: d\ndescriptors: [{ key: x, unit: day }]")]);
    let path = &dir.path("");
    let refused = run(&["limits", "lint", path]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("b.yaml: domain `d` is also defined in"), "{refused:?}");
    let merged = run(&["limits", "lint", path, "--merge-domains"]);
    assert_eq!(merged.code, 0);
    assert!(merged.out.contains("valid; domains: 1, limits: 3"), "{merged:?}");
    assert!(merged.out.contains("b.yaml:2:25: `unit` is ignored here"), "{merged:?}");
    let old = Folder::new();
    old.write("a.yaml", FILE.replace("    share_threshold: true\n", ""));
    let changed = run(&["limits", "lint", path, "--merge-domains", "--against", &old.path("")]);
    assert!(
        changed.out.contains("keys of `user/a*` share a count with other keys than before (share_threshold)"),
        "{changed:?}"
    );
}

#[test]
fn lint_against_reports_the_keys_of_a_pattern_that_lose_their_count() {
    let descriptor = |value: &str, more: &str| format!("  - {{ key: h, value: '{value}', {more} }}\n");
    let limit = "rate_limit: { unit: hour, requests_per_unit: 5 }";
    let named = "rate_limit: { name: nn, unit: hour, requests_per_unit: 5 }";
    let shared = format!("share_threshold: true, {limit}");
    let nested = format!("{limit}, descriptors: [{{ key: p, {limit} }}]");
    let shared_nested = format!("share_threshold: true, {nested}");
    let forgotten = |old: &[(&str, &str)], new: &[(&str, &str)]| {
        let file = |all: &[(&str, &str)]| {
            let all: String = all.iter().map(|(value, more)| descriptor(value, more)).collect();
            format!("domain: d\ndescriptors:\n{all}")
        };
        let dir = Folder::of(&[("old.yaml", &file(old)), ("new.yaml", &file(new))]);
        let args = ["limits", "lint", &dir.path("new.yaml"), "--against", &dir.path("old.yaml"), "--json"];
        let report: Vec<String> = serde_json::from_value(run(&args).json()["forgotten"].clone()).expect("a list");
        report.iter().map(|line| line.replace("domain `d`: ", "")).collect::<Vec<_>>()
    };
    let no_limit = |path: &str| format!("`h/v*#fixed_window0`: no limit at `{path}` continues its count");
    let others = |path: &str| format!("`h/v*#fixed_window0`: keys of `{path}` share a count with other keys");
    let removed = "`h/v*#fixed_window0`: `h/v*` was removed".to_owned();
    let v = "v*";
    for (old, new, expected) in [
        (&[(v, limit)][..], &[(v, limit), ("v1", named)][..], vec![no_limit("h/v1")]),
        (&[(v, limit)], &[("v1*", named), (v, limit)], vec![no_limit("h/v1*")]),
        (&[(v, limit)], &[("*1", named), (v, limit)], vec![no_limit("h/*1")]),
        (&[(v, limit)], &[(v, limit), ("v1", "metadata: {}")], vec![no_limit("h/v1")]),
        (&[(v, limit)], &[("v1*", &shared), (v, limit)], vec![others("h/v1*")]),
        (&[(v, &shared)], &[(v, &shared), ("v1", limit)], vec![others("h/v1")]),
        (&[(v, &shared)], &[("v1*", limit), (v, &shared)], vec![others("h/v1*")]),
        (&[(v, &shared)], &[("v1*", &shared), (v, &shared)], vec![others("h/v1*")]),
        (&[(v, &nested)], &[(v, &shared_nested)], vec![others("h/v*"), others("h/v*/p/*").replace("v*#", "v*/p/*#")]),
        // Keys of the old pattern are left without a limit.
        (&[(v, limit)], &[("v1*", limit)], vec![removed]),
        // Nothing is lost: wider patterns, names that the old file has too, and patterns that reach no key of it.
        (&[("v1*", limit)], &[(v, limit)], vec![]),
        (&[(v, limit)], &[(v, limit), ("v1", limit)], vec![]),
        (&[(v, limit), ("v1", named)], &[(v, limit), ("v1", named)], vec![]),
        (&[("v1*", named), (v, limit)], &[("v1*", named), (v, limit)], vec![]),
        (&[(v, limit)], &[(v, limit), ("v1*", named), ("w*", named), ("w", named)], vec![]),
        (&[(v, &shared)], &[("w*", &shared), (v, &shared)], vec![]),
    ] {
        let report = forgotten(old, new);
        let is_expected = report.iter().zip(&expected).all(|(line, start)| line.starts_with(start));
        assert!(is_expected && report.len() == expected.len(), "{old:?} {new:?}: {report:#?}");
    }
}

#[test]
fn commands_read_files_by_the_settings_of_the_service() {
    let dir = Folder::of(&[
        ("a.yaml", FILE),
        (
            "weir.yaml",
            "envoy: { charge: over_limit_only, merge_domains: true }\nmax_period: 29s\nlimits_require_end_marker: true",
        ),
    ]);
    let (file, settings) = (dir.path("a.yaml"), dir.path("weir.yaml"));
    let charge = |more: &[&str]| {
        let args = ["limits", "explain", &file, "--domain", "d", "user", "b", "--json"];
        run(&[&args, more].concat())
    };
    assert_eq!(charge(&[]).json()["charge"], "independent");
    let wrong = charge(&["--config", &settings]);
    assert!(wrong.code == 2 && wrong.err.contains("the file must end with"), "{wrong:?}");
    dir.write("a.yaml", format!("{FILE}...\n"));
    let wrong = charge(&["--config", &settings]);
    assert!(wrong.code == 2 && wrong.err.contains("29s"), "{wrong:?}");
    assert_eq!(charge(&["--config", &settings, "--max-period", "1d"]).json()["charge"], "over_limit_only");
    for command in [&["limits", "lint", &file][..], &["limits", "diff", &file, &file], &["simulate", "--limits", &file]]
    {
        let run = run_with(&[command, &["--config", &settings]].concat(), "");
        assert!(run.code == 2 && run.err.contains("29s"), "{command:?}: {run:?}");
    }
}

#[test]
fn explain_prints_a_descriptor_entry_by_entry() {
    let dir = Folder::new();
    let file = dir.write("a.yaml", FILE);
    let explain = |words: &[&str]| run(&[&["limits", "explain", &file, "--domain", "d"], words].concat());
    let explained = explain(&["user", "alex", "path", "/"]);
    assert_eq!(explained.code, 0, "{explained:?}");
    let expected = "domain `d`, of descriptors: every descriptor is charged for itself (independent); only the last entry's limits count
user=alex: found by the pattern `a*`, the first that fits
    user/a*#fixed_window0: fixed_window { count: 5, period: 1h, charge_denied: true }; counted as `pfixed_window3600000000#0`, ignored: more entries follow
    share_threshold: all values that fit count together
path=/: found by the descriptor without a value
    short: fixed_window { count: 2, period: 1m, charge_denied: true }; counted as `pfixed_window60000000=short`
    user/a*/path/*#fixed_window1: fixed_window { count: 9, period: 30s, charge_denied: true }; counted as `pfixed_window30000000#0`
    shadow_mode: evaluated, never refuses
    replaces, in the same request: x
";
    assert_eq!(explained.out, expected);
    let nothing = explain(&["user", "alex", "elsewhere", ""]);
    assert!(nothing.out.contains("elsewhere=: no descriptor fits; the walk ends here"), "{nothing:?}");
    assert!(nothing.out.ends_with("no limit applies: everything is allowed\n"), "{nothing:?}");
    let unlimited = explain(&["user", "root"]);
    assert!(unlimited.out.contains("user=root: found by its value\n    unlimited\n"), "{unlimited:?}");
    let odd = explain(&["user", "root", "path"]);
    assert!(
        odd.code == 2 && odd.err.contains("every key has a value") && odd.err.contains("`path` has none"),
        "{odd:?}"
    );

    assert_eq!(
        explain(&["user", "b", "--json"]).json(),
        json!({ "domain": "d", "charge": "independent", "anchor": 32, "limited": false, "ban": null, "steps": [{
            "key": "user", "value": "b", "found": "any", "descriptor": "*", "limits": [], "counts": true,
            "unlimited": false, "shadow_mode": false, "quota_mode": false, "share_threshold": false }] })
    );
}

#[test]
fn a_reset_of_one_value_forgets_what_all_of_a_pattern_count() {
    let server = Server::with_policy(FILE);
    let told = |words: &[&str]| server.run(&[words, &["--domain", "d", "--json"]].concat()).json();
    for (user, left) in [("alex", 4), ("abel", 3)] {
        assert_eq!(told(&["check", "user", user])["remaining"], left);
    }
    assert_eq!(told(&["reset", "user", "abel"])["existed"], true);
    assert_eq!(told(&["check", "user", "alex"])["remaining"], 4);
    assert_eq!(told(&["reset", "user", "abel", "--subtree"])["removed"], true);
    assert_eq!(told(&["reset", "user", "abel"])["existed"], false);
}

/// Limits in requests, and those that Envoy's descriptors bring, count each value for itself.
#[tokio::test]
async fn a_reset_of_a_value_that_shares_its_count_forgets_its_own_counts_too() {
    let server = Server::with_policy(FILE);
    let key = ["user", "alex"];
    let by_check = async || {
        let request = with_limits(CheckRequest { domain: "d".to_owned(), ..check(&key) }, vec![gcra(0, 1, 86_400)]);
        server.check(request).await.allowed
    };
    let by_envoy = async || {
        let limit = Some(RateLimitOverride { requests_per_unit: 1, unit: RateLimitUnit::Year.into() });
        let descriptors = vec![RateLimitDescriptor { limit, ..descriptor(&key, 1) }];
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, ..RateLimitRequest::default() };
        should_rate_limit(server.channel().await, request).await.expect("an answer").overall_code == Code::Ok as i32
    };
    for subtree in [false, true, false] {
        assert!(by_check().await && by_envoy().await, "full again");
        assert!(!by_check().await && !by_envoy().await);
        let request = ResetRequest { domain: "d".to_owned(), ..reset(&key, subtree) };
        let done = server.client().await.reset(request).await.expect("it is reset").into_inner();
        assert!(done.existed && done.removed == Some(true), "{done:?}");
    }
}
