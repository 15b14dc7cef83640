//! Overrides and bans of Envoy's descriptors.

use weir::proto::{Override, r#override::Change};
use weir_envoy::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use crate::support::{
    Server,
    envoy::{descriptor, should_rate_limit},
    overrides::{over, set},
    server::Setup,
};

/// The overall codes.
const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;

fn policy(charge: &str) -> String {
    let rule = |key| format!("- {{ key: {key}, rate_limit: {{ unit: year, requests_per_unit: 3 }} }}\n");
    format!("domain: edge\ncharge: {charge}\ndescriptors:\n{}{}", rule("remote_address"), rule("user"))
}

async fn ask(server: &Server, descriptors: &[(&[&str], i64)]) -> RateLimitResponse {
    let descriptors = descriptors.iter().map(|(key, hits)| descriptor(key, *hits)).collect();
    let request = RateLimitRequest { domain: "edge".to_owned(), descriptors, ..Default::default() };
    should_rate_limit(server.channel().await, request).await.expect("an answer")
}

async fn put(server: &Server, key: &[&str], change: Change) {
    set(server, Override { domain: "edge".to_owned(), ..over(key, change) }).await;
}

#[tokio::test]
async fn descriptors_are_overridden() {
    let server = Server::with_policy(&policy("independent"));
    let peek = async |address: &str| {
        let answer = ask(&server, &[(&["remote_address", address], 0)]).await;
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref().map(|limit| limit.requests_per_unit);
        (answer.overall_code, limit, status.limit_remaining)
    };
    assert_eq!(peek("10.0.0.1").await, (OK, Some(3), 3));
    put(&server, &["remote_address", "10.0.0.1"], Change::Factor(0.5)).await;
    assert_eq!(peek("10.0.0.1").await, (OK, Some(6), 6));
    put(&server, &["remote_address", "10.0.0.1"], Change::Ban(true)).await;
    assert_eq!(peek("10.0.0.1").await, (OVER_LIMIT, None, 0));
    assert_eq!(peek("10.0.0.2").await, (OK, Some(3), 3));

    // With this override the descriptors are in shadow mode.
    let hit = async |hits| ask(&server, &[(&["user", "alex"], hits)]).await.overall_code;
    assert_eq!([hit(3).await, hit(1).await], [OK, OVER_LIMIT]);
    put(&server, &["user", "alex"], Change::Shadow(true)).await;
    assert_eq!(hit(1).await, OK);
    let (_, metrics) = server.get("/metrics");
    assert!(metrics.contains("outcome=\"shadow_limited\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_ban_refuses_the_whole_request_which_charges_nothing() {
    for (charge, quota_mode) in
        [("independent", "false"), ("over_limit_only", "false"), ("all_or_nothing", "false"), ("independent", "true")]
    {
        let setup = Setup::new().policy(&policy(charge)).env("WEIR_ENVOY__QUOTA_MODE", quota_mode);
        let server = setup.start();
        put(&server, &["remote_address", "10.0.0.1"], Change::Ban(true)).await;
        let answer = ask(&server, &[(&["remote_address", "10.0.0.1"], 1), (&["user", "alex"], 1)]).await;
        assert_eq!(answer.overall_code, OVER_LIMIT, "{charge}, quota mode: {quota_mode}");
        let codes: Vec<_> = answer.statuses.iter().map(|status| status.code).collect();
        assert_eq!(codes, [OVER_LIMIT, OK], "{charge}, quota mode: {quota_mode}");
        let left = ask(&server, &[(&["user", "alex"], 0)]).await.statuses[0].limit_remaining;
        assert_eq!(left, 3, "{charge}, quota mode: {quota_mode}");
    }
}

#[tokio::test]
async fn a_ban_acts_in_a_domain_that_the_policy_does_not_have() {
    for server in [Server::with_policy("domain: other\nschema: {}\n"), Setup::new().start()] {
        put(&server, &["remote_address", "10.0.0.1"], Change::Ban(true)).await;
        put(&server, &["remote_address", "10.0.0.2"], Change::Factor(2.0)).await;
        let code = async |address: &str| ask(&server, &[(&["remote_address", address], 1)]).await.overall_code;
        assert_eq!([code("10.0.0.1").await, code("10.0.0.2").await], [OVER_LIMIT, OK]);
    }
}
