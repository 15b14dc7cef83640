//! Rate-limit headers that Envoy's client gets.

use crate::{config::headers, scene::Wish, support::http::Answer};

const YEAR: u64 = 365 * 24 * 60 * 60;

const PER_USER: &str = "
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2, name: per-user }
";

fn user() -> Vec<serde_json::Value> {
    vec![headers(&[("x-user", "user")])]
}

/// Returns limit, remaining, and whether the reset time is within the period, from the headers with this prefix.
fn rate_limit_headers(answer: &Answer, prefix: &str) -> (String, u64, bool) {
    let name = |what: &str| format!("{prefix}{what}");
    let limit = answer.header(&name("limit")).unwrap_or_else(|| panic!("no limit: {answer:?}"));
    let reset = (1..=YEAR).contains(&answer.number(&name("reset")));
    (limit.to_owned(), answer.number(&name("remaining")), reset)
}

#[test]
fn limit_remaining_and_reset_headers_are_in_every_response() {
    let scene = Wish::new(PER_USER, user()).ratelimit_headers().start();
    let mut client = scene.client();
    for (status, remaining) in [(200, 1), (200, 0), (429, 0), (429, 0)] {
        let answer = client.get(&[("x-user", "alex")]);
        assert_eq!(answer.status, status);
        assert_eq!(rate_limit_headers(&answer, "ratelimit-"), ("2".to_owned(), remaining, true));
        let limit = format!("2, 2;w={YEAR};name=\"per-user\"");
        assert_eq!(rate_limit_headers(&answer, "x-ratelimit-"), (limit, remaining, true));
        assert_eq!(answer.header("x-envoy-ratelimited"), (status == 429).then_some("true"));
    }
    let nothing = client.get(&[]);
    assert_eq!((nothing.header("ratelimit-limit"), nothing.header("x-ratelimit-limit")), (None, None));
}

#[test]
fn dynamic_metadata_is_sent_when_enabled() {
    let descriptors = "
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
    metadata: { tier: { name: gold } }
";
    let scene = Wish::new(descriptors, user()).start();
    let answer = scene.client().get(&[("x-user", "alex")]);
    assert_eq!(answer.header("x-metadata").unwrap_or("-"), "-");

    let scene = Wish::new(descriptors, user()).env("WEIR_ENVOY__DYNAMIC_METADATA", "true").start();
    let mut client = scene.client();
    let metadata = |answer: &Answer| -> serde_json::Value {
        let text = answer.header("x-metadata").unwrap_or_else(|| panic!("no metadata: {answer:?}"));
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let passed = metadata(&client.get(&[("x-user", "alex")]));
    assert_eq!(passed["domain"], "shop");
    assert_eq!(passed["descriptors"][0]["entries"], serde_json::json!(["user=alex"]));
    assert_eq!(passed["metadata"], serde_json::json!({ "tier": { "name": "gold" } }));
}
