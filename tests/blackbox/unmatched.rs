//! Checks without a matching limit pass, and every surface counts them.

use serde_json::json;
use weir::proto::{CheckBatchRequest, CheckRequest};
use weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::support::{
    Folder, Server, envoy,
    http::Client,
    requests::{check, gcra, with_limits},
    server::Setup,
};

const NATIVE: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";
const DESCRIPTORS: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: user, value: root, rate_limit: { unlimited: true } }
";

/// Returns the counts by domain: default, `shop` and others.
fn unmatched(server: &Server) -> [f64; 3] {
    ["default", "shop", "other"]
        .map(|domain| server.metric(&format!("weir_unmatched_checks_total{{domain=\"{domain}\"}}")))
}

#[tokio::test]
async fn every_surface_counts_unmatched_checks_and_lifted_limits_are_matches() {
    let dir = Folder::of(&[("native.yaml", NATIVE), ("descriptors.yaml", DESCRIPTORS)]);
    let server = Setup::new().env("WEIR_HTTP__UI__ENABLED", "true").limits(dir.path("").into()).start();
    let mut client = server.client().await;
    let misspelled = || check(&["usr", "alex"]);
    assert!(client.check(misspelled()).await.expect("an answer").into_inner().allowed);
    let batch = CheckBatchRequest { checks: vec![misspelled(), check(&["user", "alex"]), check(&["user"])] };
    client.check_batch(batch).await.expect("answers");
    let stream = futures_util::stream::iter(vec![misspelled(); 3]);
    let mut answers = client.check_stream(stream).await.expect("a stream").into_inner();
    while answers.message().await.expect("an answer").is_some() {}
    assert_eq!(unmatched(&server), [6.0, 0.0, 0.0]);

    let mut http = Client::connect(&server.http).expect("it accepts connections");
    assert_eq!(http.post("/v1/check", &json!({ "key": ["usr"] })).status, 200);
    let checks = json!({ "checks": [{ "key": ["usr"] }, { "key": ["user", "alex"] }] });
    assert_eq!(http.post("/v1/check_batch", &checks).status, 200);
    assert_eq!(unmatched(&server), [8.0, 0.0, 0.0]);
    let live = http.post("/ui/api/live", &json!({ "domain": "" })).json();
    assert_eq!((&live["unmatched"], &live["checks"]), (&json!(8), &json!([10, 0, 0])));

    let channel = server.channel().await;
    for (domain, descriptors) in [
        ("shop", vec![&["path", "/a"][..], &["user", "alex", "x", "y"]]),
        ("nowhere", vec![&["user", "alex"]]),
        // These are matched: one matching descriptor is enough.
        ("shop", vec![&["path", "/a"], &["user", "alex"]]),
        ("shop", vec![&["user", "root"]]),
    ] {
        let descriptors = descriptors.into_iter().map(|entries| envoy::descriptor(entries, 1)).collect();
        let request = RateLimitRequest { domain: domain.to_owned(), descriptors, ..Default::default() };
        envoy::should_rate_limit(channel.clone(), request).await.expect("an answer");
    }
    let body = json!({ "domain": "shop", "descriptors": [{ "entries": [{ "key": "path", "value": "/a" }] }] });
    assert_eq!(http.post("/json", &body).status, 200);
    assert_eq!(unmatched(&server), [8.0, 2.0, 1.0]);

    // Lifted limits and unlimited rules are matches.
    let lifted = |request| CheckRequest { factor: Some(0.0), ..request };
    let of_shop = |key: &[&str]| CheckRequest { domain: "shop".to_owned(), ..check(key) };
    for request in [
        lifted(check(&["user", "alex"])),
        lifted(with_limits(check(&["usr"]), vec![gcra(1, 1, 60)])),
        of_shop(&["user", "root"]),
        lifted(of_shop(&["user", "alex"])),
    ] {
        assert!(client.check(request).await.expect("an answer").into_inner().allowed);
    }
    client.check(CheckRequest { domain: "nowhere".to_owned(), ..check(&["a"]) }).await.expect_err("no such domain");
    assert_eq!(unmatched(&server), [8.0, 2.0, 1.0]);
    for request in [lifted(check(&["usr"])), with_limits(check(&["user", "alex"]), vec![]), of_shop(&["user"])] {
        assert!(client.check(request).await.expect("an answer").into_inner().allowed);
    }
    assert_eq!(unmatched(&server), [10.0, 3.0, 1.0]);
}
