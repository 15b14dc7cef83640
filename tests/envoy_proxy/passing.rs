//! Requests pass up to the limit.

use crate::{
    config::{headers, overridden, remote_address},
    scene::Wish,
};

const PER_USER: &str = "
  - key: user
    rate_limit: { unit: year, requests_per_unit: 3 }
";

#[test]
fn requests_are_admitted_up_to_the_limit() {
    let scene = Wish::new(PER_USER, vec![headers(&[("x-user", "user")])]).start();
    let mut client = scene.client();
    assert_eq!(client.statuses(5, &[("x-user", "alex")]), [200, 200, 200, 429, 429]);
    assert_eq!(scene.upstream.served(), 3, "what is refused does not come through");
    assert_eq!(client.get(&[("x-user", "berta")]).status, 200, "another user has a count of his own");
    assert_eq!(client.statuses(6, &[]), [200; 6], "without the header there is nothing to ask about");
    assert_eq!((scene.proxy.counted("ok"), scene.proxy.counted("over_limit")), (4, 2), "{}", scene.proxy.log());
    assert_eq!(scene.proxy.counted("error"), 0);
}

#[test]
fn every_descriptor_is_charged_and_one_can_refuse() {
    let descriptors = "
  - key: remote_address
    value: 127.0.0.1
    rate_limit: { unit: year, requests_per_unit: 4 }
  - key: user
    rate_limit: { unit: month, requests_per_unit: 3 }
";
    let scene = Wish::new(descriptors, vec![remote_address(), headers(&[("x-user", "user")])]).start();
    let mut client = scene.client();
    assert_eq!(client.statuses(3, &[("x-user", "alex")]), [200; 3]);
    // This would be the fourth request of the address, but alex has exhausted his limit.
    assert_eq!(client.get(&[("x-user", "alex")]).status, 429);
    assert_eq!(client.get(&[("x-user", "berta")]).status, 429, "a refused request counts for the address too");
}

#[test]
fn a_limit_override_from_the_proxy_takes_precedence() {
    let rate_limits = vec![overridden(headers(&[("x-user", "user")]))];
    let limit = serde_json::json!({ "requests_per_unit": 1, "unit": "YEAR" });
    let scene = Wish::new(PER_USER, rate_limits).over(limit).ratelimit_headers().start();
    let mut client = scene.client();
    let first = client.get(&[("x-user", "alex")]);
    assert_eq!((first.status, first.number("ratelimit-limit")), (200, 1));
    assert_eq!(first.header("x-ratelimit-limit"), Some("1, 1;w=31536000"));
    assert_eq!(client.get(&[("x-user", "alex")]).status, 429);
}
