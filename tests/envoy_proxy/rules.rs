//! The rules of a descriptor file, tested with real requests.

use crate::{
    client::Client,
    config::headers,
    scene::{Scene, Wish},
};

/// Makes a descriptor for each key, from the header with the same name.
fn each(keys: &[&'static str]) -> Vec<serde_json::Value> {
    keys.iter().map(|key| headers(&[(key, key)])).collect()
}

async fn start(descriptors: &str, rate_limits: Vec<serde_json::Value>) -> (Scene, Client) {
    let scene = Wish::new(descriptors, rate_limits).ratelimit_headers().start();
    let client = scene.client().await;
    (scene, client)
}

#[tokio::test]
async fn exact_values_override_patterns_which_override_the_default() {
    let descriptors = "
  - key: path
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: path
    value: /api/*
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: path
    value: /api/*/long
    rate_limit: { unit: year, requests_per_unit: 3 }
  - key: path
    value: /api/open
    rate_limit: { unit: year, requests_per_unit: 4 }
";
    let (_scene, mut client) = start(descriptors, each(&["path"])).await;
    for (path, limit) in
        [("/api/open", 4), ("/api/a", 2), ("/api/b", 2), ("/api/", 2), ("/api/a/long", 2), ("/other", 1), ("/third", 1)]
    {
        let passed = client.statuses(limit, &[("path", path)]).await;
        assert_eq!(passed, vec![200; limit], "{path}: each value has a count of its own");
        let refused = client.get(&[("path", path)]).await;
        assert_eq!((refused.status, refused.number("ratelimit-limit")), (429, limit as u64), "{path}");
    }
}

#[tokio::test]
async fn share_threshold_counts_all_values_of_a_pattern_together() {
    let descriptors = "
  - key: file
    value: /files/*.iso
    share_threshold: true
    rate_limit: { unit: year, requests_per_unit: 3 }
";
    let (_scene, mut client) = start(descriptors, each(&["file"])).await;
    for (file, status) in [
        ("/files/a.iso", 200),
        ("/files/b.iso", 200),
        ("/files/c.iso", 200),
        ("/files/d.iso", 429),
        ("/files/a.txt", 200),
    ] {
        assert_eq!(client.get(&[("file", file)]).await.status, status, "{file}");
    }
}

#[tokio::test]
async fn only_the_limit_of_the_last_entry_applies() {
    let descriptors = "
  - key: user
    rate_limit: { unit: year, requests_per_unit: 5 }
    descriptors:
      - key: action
        value: trade
        rate_limit: { unit: year, requests_per_unit: 1 }
      - key: action
        rate_limit: { unit: year, requests_per_unit: 2 }
        descriptors:
          - key: item
  - key: user
    value: root
";
    let rate_limits = vec![
        headers(&[("user", "user"), ("action", "action"), ("item", "item"), ("more", "more")]),
        headers(&[("user", "user"), ("action", "action"), ("item", "item")]),
        headers(&[("user", "user"), ("action", "action")]),
        headers(&[("only", "user")]),
    ];
    let (_scene, mut client) = start(descriptors, rate_limits).await;
    let action = |action| [("user", "alex"), ("action", action)];
    assert_eq!(client.statuses(2, &action("trade")).await, [200, 429]);
    assert_eq!(client.statuses(3, &action("look")).await, [200, 200, 429], "the default of the level");
    assert_eq!(client.statuses(6, &[("only", "alex")]).await, [200, 200, 200, 200, 200, 429], "levels count apart");
    assert_eq!(client.statuses(3, &[("user", "root"), ("action", "trade")]).await, [200; 3], "there is no way back");
    let longer = [("user", "berta"), ("action", "look"), ("item", "a"), ("more", "b")];
    // The descriptor of two entries is limited; longer ones below it have no limit.
    assert_eq!(client.statuses(3, &longer).await, [200, 200, 429]);
}

#[tokio::test]
async fn limits_in_shadow_mode_never_refuse() {
    let descriptors = "
  - key: user
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: group
    rate_limit: { unit: year, requests_per_unit: 5 }
";
    let (_scene, mut client) = start(descriptors, each(&["user", "group"])).await;
    for remaining in [1, 0, 0, 0] {
        let answer = client.get(&[("user", "alex")]).await;
        assert_eq!((answer.status, answer.number("ratelimit-remaining")), (200, remaining));
    }
    let both = [("user", "berta"), ("group", "a")];
    assert_eq!(client.statuses(6, &both).await, [200, 200, 200, 200, 200, 429], "the other one still refuses");

    let scene = Wish::new(descriptors, each(&["group"])).env("WEIR_ENVOY__SHADOW_MODE", "true").start();
    assert_eq!(scene.client().await.statuses(7, &[("group", "a")]).await, [200; 7]);
}

#[tokio::test]
async fn quotas_refuse_when_all_are_exhausted() {
    let descriptors = "
  - key: model
    quota_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: fallback
    quota_mode: true
    rate_limit: { unit: year, requests_per_unit: 3 }
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
";
    let (_scene, mut client) = start(descriptors, each(&["model", "fallback", "user"])).await;
    let both = [("model", "large"), ("fallback", "small")];
    assert_eq!(client.statuses(4, &both).await, [200, 200, 200, 429]);
    assert_eq!(client.statuses(2, &[("model", "alone")]).await, [200, 429]);
    let with_user = [("model", "a"), ("fallback", "b"), ("user", "alex")];
    assert_eq!(client.statuses(3, &with_user).await, [200, 200, 429], "what is no quota refuses alone");
}

#[tokio::test]
async fn quota_mode_can_be_set_for_all_limits() {
    let descriptors = "
  - key: model
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: fallback
    rate_limit: { unit: year, requests_per_unit: 2 }
";
    let scene = Wish::new(descriptors, each(&["model", "fallback"])).env("WEIR_ENVOY__QUOTA_MODE", "true").start();
    let both = [("model", "large"), ("fallback", "small")];
    assert_eq!(scene.client().await.statuses(3, &both).await, [200, 200, 429]);
}

#[tokio::test]
async fn unlimited_values_are_never_refused() {
    let descriptors = "
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: user
    value: root
    rate_limit: { unlimited: true }
  - key: user
    value: nobody
    rate_limit: { unit: second, requests_per_unit: 0 }
";
    let (_scene, mut client) = start(descriptors, each(&["user"])).await;
    assert_eq!(client.statuses(20, &[("user", "root")]).await, [200; 20]);
    assert_eq!(client.get(&[("user", "root")]).await.header("ratelimit-limit"), None);
    assert_eq!(client.statuses(2, &[("user", "alex")]).await, [200, 429]);
    assert_eq!(client.statuses(2, &[("user", "nobody")]).await, [429; 2]);
}

#[tokio::test]
async fn a_limit_can_replace_another() {
    let descriptors = "
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1, name: basic }
  - key: plan
    value: gold
    rate_limit: { unit: year, requests_per_unit: 3, name: gold, replaces: [{ name: basic }] }
  - key: plan
    value: staff
    rate_limit: { unlimited: true, replaces: [{ name: basic }, { name: gold }] }
";
    let (_scene, mut client) = start(descriptors, each(&["user", "plan"])).await;
    let gold = [("user", "alex"), ("plan", "gold")];
    assert_eq!(client.statuses(4, &gold).await, [200, 200, 200, 429]);
    assert_eq!(client.statuses(2, &[("user", "alex")]).await, [200, 429], "what was replaced was not charged");
    assert_eq!(client.statuses(4, &[("user", "alex"), ("plan", "staff")]).await, [200; 4]);
}

#[tokio::test]
async fn files_of_one_domain_are_merged_when_enabled() {
    let more = "domain: shop\ndescriptors:\n  - { key: group, rate_limit: { unit: year, requests_per_unit: 2 } }\n";
    let user = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }\n";
    let wish = Wish::new(user, each(&["user", "group"])).policy(more);
    let scene = wish.env("WEIR_ENVOY__MERGE_DOMAINS", "true").start();
    let mut client = scene.client().await;
    assert_eq!(client.statuses(2, &[("user", "alex")]).await, [200, 429]);
    assert_eq!(client.statuses(3, &[("group", "a")]).await, [200, 200, 429]);
}
