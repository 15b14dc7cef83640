//! `envoy.quota_mode`: a request is refused only when all its limits are used up, and is charged until then.

use weir_envoy::envoy::{
    extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride,
    service::ratelimit::v3::RateLimitRequest, r#type::v3::RateLimitUnit,
};

use crate::support::{
    Server,
    envoy::{descriptor, should_rate_limit},
    server::Setup,
};

const DESCRIPTORS: &str = "
domain: edge
descriptors:
  - { key: few, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: more, rate_limit: { unit: year, requests_per_unit: 3 } }
";

/// Overall codes: 1 is OK, 2 is OVER_LIMIT.
async fn codes(server: &Server, own_limit: bool) -> Vec<i32> {
    let mut descriptors = vec![descriptor(&["few", "x"], 1), descriptor(&["more", "x"], 1)];
    if own_limit {
        descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 1, unit: RateLimitUnit::Day.into() });
    }
    let request = RateLimitRequest { domain: "edge".to_owned(), descriptors, ..Default::default() };
    let mut codes = Vec::new();
    for _ in 0..4 {
        let answer = should_rate_limit(server.channel().await, request.clone()).await.expect("an answer");
        codes.push(answer.overall_code);
    }
    codes
}

#[tokio::test]
async fn quotas_are_charged_while_one_of_them_is_left() {
    for charge in ["independent", "all_or_nothing"] {
        for own_limit in [false, true] {
            let setup = Setup::new().policy(DESCRIPTORS).env("WEIR_ENVOY__QUOTA_MODE", "true");
            let server = setup.env("WEIR_ENVOY__CHARGE", charge).start();
            assert_eq!(codes(&server, own_limit).await, [1, 1, 1, 2], "{charge}, a limit of its own: {own_limit}");
        }
    }
}

#[tokio::test]
async fn limits_in_weirs_format_are_no_quotas() {
    let limit = |count| format!("limits: [{{ fixed_window: {{ count: {count}, period: 31d }} }}]");
    let node = |name, count| format!("{name}: {{ children: {{ '*': {{ {} }} }} }}", limit(count));
    let policy = format!("domain: edge\nschema: {{ {}, {} }}", node("few", 1), node("more", 3));
    let server = Setup::new().policy(&policy).env("WEIR_ENVOY__QUOTA_MODE", "true").start();
    assert_eq!(codes(&server, false).await, [1, 2, 2, 2]);
}
