//! Tests of the metadata of responses, with a policy file of descriptors.

use serde_json::json;
use weir_core::domain::Unit;

use super::*;
use crate::transport::rls::tests::{Scene, request_for};

const FILE: &str = "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: day, requests_per_unit: 2, name: a }
    metadata: { first: a, both: { left: 1, deep: { a: true } }, list: [1, 'two', null], text: x, map: { a: 1 } }
  - key: b
    rate_limit: { unit: day, requests_per_unit: 5, name: b, replaces: [{ name: replaced }] }
    metadata: { second: b, both: { left: 2, right: 2.5, deep: { a: false, b: true } }, list: [9], text: { y: 1 }, map: z }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 }, metadata: { shadow: 1 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 0 }, metadata: { quota: 1 } }
  - { key: full, detailed_metric: true, value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 1 }, metadata: { full: 1 } }
  - { key: replaced, rate_limit: { unit: day, requests_per_unit: 1, name: replaced }, metadata: { replaced: 1 } }
  - { key: free, rate_limit: { unlimited: true }, metadata: { free: 1 } }
  - { key: none, metadata: { none: 1 } }
  - { key: silent, rate_limit: { unit: day, requests_per_unit: 1 } }
";

fn response(scene: &Scene, request: &RateLimitRequest) -> Json {
    scene.answered(request, |statuses| json_of(Kind::StructValue(of(request, statuses))))
}

/// Returns the metadata after one request with descriptors of these keys.
fn metadata_of(keys: &[&str]) -> Json {
    response(&Scene::new(FILE), &request_for(keys))["metadata"].clone()
}

fn json_of(kind: Kind) -> Json {
    let inner = |value: Value| json_of(value.kind.expect("a kind"));
    match kind {
        Kind::NullValue(_) => Json::Null,
        Kind::BoolValue(flag) => json!(flag),
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::ListValue(list) => list.values.into_iter().map(inner).collect(),
        Kind::StructValue(map) => map.fields.into_iter().map(|(name, value)| (name, inner(value))).collect(),
    }
}

#[test]
fn the_first_value_of_a_name_is_kept_and_maps_are_merged() {
    assert_eq!(
        metadata_of(&["a", "b"]),
        json!({
            "first": "a", "second": "b",
            "both": { "left": 1.0, "right": 2.5, "deep": { "a": true, "b": true } },
            "list": [1.0, "two", null], "text": "x", "map": { "a": 1.0 },
        })
    );
    assert_eq!(
        metadata_of(&["b", "a", "b"]),
        json!({
            "first": "a", "second": "b",
            "both": { "left": 2.0, "right": 2.5, "deep": { "a": false, "b": true } },
            "list": [9.0], "text": { "y": 1.0 }, "map": "z",
        })
    );
}

#[test]
fn exceeded_limits_add_no_metadata() {
    let (scene, request) = (Scene::new(FILE), request_for(&["a", "b"]));
    for _ in 0..2 {
        assert_eq!(response(&scene, &request)["metadata"]["first"], json!("a"));
    }
    let third = response(&scene, &request);
    assert_eq!(third["metadata"]["first"], Json::Null, "`a` is over");
    assert_eq!(third["metadata"]["both"]["left"], json!(2.0));
    assert_eq!(third["descriptors"].as_array().map(Vec::len), Some(2), "what was asked is written all the same");
    assert_eq!(metadata_of(&["quota"]), Json::Null, "over, whether it refuses by itself or not");
    assert_eq!(metadata_of(&["shadow"]), json!({ "shadow": 1.0 }), "over, and passes");
}

#[test]
fn only_rules_with_a_counting_limit_add_metadata() {
    for silent in ["free", "none", "nobody", "silent"] {
        assert_eq!(metadata_of(&[silent]), Json::Null, "{silent}");
    }
    assert_eq!(metadata_of(&["b", "replaced"])["replaced"], Json::Null);
    assert_eq!(metadata_of(&["replaced"]), json!({ "replaced": 1.0 }));
    assert_eq!(metadata_of(&["full"]), json!({ "full": 1.0 }));
    let mut overridden = request_for(&["a"]);
    overridden.query.descriptors[0].over = Some(DescriptorLimit { requests_per_unit: 1, unit: Unit::Day });
    assert_eq!(response(&Scene::new(FILE), &overridden)["metadata"], Json::Null, "the rule does not count");
}

#[test]
fn the_request_is_included_in_the_metadata() {
    let mut request = request_for(&["nobody", "nobody", "nobody"]);
    request.hits_addend = 4;
    request.own_hits = vec![false, true, true];
    let [first, second, third] = &mut request.query.descriptors[..] else { panic!("three") };
    first.entries.push(("p=q".to_owned(), String::new()));
    (second.entries, second.hits) = (Vec::new(), -3);
    (third.hits, third.over) = (0, Some(DescriptorLimit { requests_per_unit: 10, unit: Unit::Minute }));
    assert_eq!(
        response(&Scene::new(FILE), &request),
        json!({
            "domain": "d", "hitsAddend": 4.0,
            "descriptors": [
                { "entries": ["nobody=v", "p=q="] },
                { "entries": [], "hitsAddend": -3.0 },
                { "entries": ["nobody=v"], "hitsAddend": 0.0, "limit": "requests_per_unit:10 unit:MINUTE" },
            ],
        })
    );
}

#[test]
fn entries_that_are_not_kept_leave_no_trace() {
    use weir_envoy::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::RateLimitRequest as Sent,
    };
    for (count, kept) in [(16, 16), (17, 17), (18, 17), (40, 17)] {
        let entries = (0..count).map(|index| Entry { key: format!("k{index}"), value: "v".to_owned() });
        let descriptors = vec![RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }];
        let sent = Sent { domain: "d".to_owned(), descriptors, hits_addend: 0 };
        let request = RateLimitRequest::read(&prost::Message::encode_to_vec(&sent)).expect("a request");
        let expected: Vec<_> = (0..kept).map(|index| format!("k{index}=v")).collect();
        assert_eq!(response(&Scene::new(FILE), &request)["descriptors"][0]["entries"], json!(expected), "{count}");
    }
}

#[test]
fn limits_are_encoded_in_the_text_format() {
    let text = |requests_per_unit, unit| limit(DescriptorLimit { requests_per_unit, unit });
    assert_eq!(text(4_294_967_295, Unit::Week), "requests_per_unit:4294967295 unit:WEEK");
    assert_eq!(text(0, Unit::Day), "unit:DAY");
}
