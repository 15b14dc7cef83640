//! Tests of which descriptor the headers describe.

use weir_policy::Rules;

use super::*;
use crate::transport::rls::{
    Headers,
    tests::{Scene, request_for},
};

const FILE: &str = "
domain: d
descriptors:
  - { key: one, rate_limit: { unit: day, requests_per_unit: 1, name: one } }
  - { key: nine, rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: ten, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: other_ten, rate_limit: { unit: hour, requests_per_unit: 10, name: other } }
  - { key: over, rate_limit: { unit: day, requests_per_unit: 0, name: over } }
  - { key: over_too, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: bucket, rate_limit: { algorithm: { token_bucket: { capacity: 5, count: 1, period: 10s } } } }
";

fn headers_of(keys: &[&str], settings: &EnvoySettings) -> String {
    let rules = Rules { descriptors_quota_mode: settings.quota_mode, ..Rules::default() };
    let headers = Scene::under(&rules, FILE).answered(&request_for(keys), |statuses| of(statuses, settings));
    let header = |header: HeaderValue| format!("{}: {}", header.key, header.value);
    headers.into_iter().map(header).collect::<Vec<_>>().join("\n")
}

/// Returns limit, remaining and reset.
fn numbers(keys: &[&str], quota_mode: bool) -> String {
    let settings = EnvoySettings { headers: Headers::Ratelimit, quota_mode, ..EnvoySettings::default() };
    let headers = headers_of(keys, &settings);
    let numbers: Vec<_> = headers.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
    numbers.join(" ")
}

#[test]
fn headers_describe_the_last_exceeded_or_the_nearest_descriptor() {
    for (keys, expected) in [
        (&["ten"][..], "10 9 86400"),
        (&["ten", "nine", "other_ten"], "9 8 86400"),
        (&["other_ten", "ten"], "10 9 3600"),
        (&["over", "over_too", "nine"], "0 0 3600"),
        (&["over_too", "over", "quota"], "0 0 86400"),
        (&["quota", "nine"], "0 0 60"),
        (&["nine", "shadow", "quota"], "0 0 1"),
        (&["free", "nobody", "ten"], "10 9 86400"),
        (&["bucket"], "5 4 10"),
        (&["free", "nobody"], ""),
    ] {
        assert_eq!(numbers(keys, false), expected, "{keys:?}");
    }
    // If all are quotas, none of them refuses alone.
    assert_eq!(numbers(&["over", "over_too"], true), "0 0 86400");
}

#[test]
fn the_settings_select_the_headers_and_their_names() {
    let settings = |headers| EnvoySettings {
        headers,
        limit_header: "X-Most".to_owned(),
        remaining_header: "X-Left".to_owned(),
        reset_header: "X-Wait".to_owned(),
        ..EnvoySettings::default()
    };
    let ours = "X-Most: 10\nX-Left: 9\nX-Wait: 3600";
    let draft = "ratelimit-policy: \"other\";q=10;w=3600\nratelimit: \"other\";r=9";
    for (headers, expected) in [
        (Headers::Off, String::new()),
        (Headers::Ratelimit, ours.to_owned()),
        (
            Headers::XRatelimitLimit,
            "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 9\nX-RateLimit-Reset: 3600".to_owned(),
        ),
        (Headers::Draft11, draft.to_owned()),
        (Headers::Both, format!("{ours}\n{draft}")),
    ] {
        assert_eq!(headers_of(&["other_ten"], &settings(headers)), expected);
    }
    let unnamed = "ratelimit-policy: \"nine/*#fixed_window0\";q=9;w=86400\nratelimit: \"nine/*#fixed_window0\";r=8";
    assert_eq!(headers_of(&["nine"], &settings(Headers::Draft11)), unnamed);
    // The time to the next unit, if none is left.
    let exhausted = "ratelimit-policy: \"one\";q=1;w=86400\nratelimit: \"one\";r=0;t=86400";
    assert_eq!(headers_of(&["one"], &settings(Headers::Draft11)), exhausted);
}
