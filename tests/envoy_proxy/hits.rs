//! Requests that count for more than one, or for none, each descriptor by itself.

use crate::{
    config::{fixed, headers, hits, when_done, with},
    scene::Wish,
    support::eventually_async,
    upstream::ECHOED,
};

#[tokio::test]
async fn each_descriptor_counts_its_own_hits() {
    let descriptors = "
  - key: user
    rate_limit: { unit: year, requests_per_unit: 10 }
  - key: all
    rate_limit: { unit: year, requests_per_unit: 6 }
";
    let rate_limits = vec![hits(headers(&[("x-user", "user")]), "REQ(x-cost)"), fixed("all", "requests")];
    let scene = Wish::new(descriptors, rate_limits).ratelimit_headers().start();
    let mut client = scene.client().await;
    let cost = |user, cost| [("x-user", user), ("x-cost", cost)];
    for (user, hits, status, remaining) in [
        ("alex", "4", 200, 5),
        ("alex", "6", 200, 0),
        ("alex", "0", 200, 0),
        ("alex", "1", 429, 0),
        ("berta", "11", 429, 0),
    ] {
        let answer = client.get(&cost(user, hits)).await;
        let left = answer.number("ratelimit-remaining").min(remaining);
        assert_eq!((answer.status, left), (status, remaining), "{user} {hits}: {answer:?}");
    }
    // Five requests so far, whatever they cost.
    assert_eq!(client.get(&cost("carl", "1")).await.status, 200);
    assert_eq!(client.get(&cost("carl", "1")).await.status, 429);
}

#[tokio::test]
async fn what_a_request_has_used_may_be_told_when_it_is_over() {
    let descriptors = "
  - key: tokens
    rate_limit: { unit: year, requests_per_unit: 100 }
";
    let of_user = || headers(&[("x-user", "tokens")]);
    let ask = with(of_user(), "hits_addend", serde_json::json!({ "number": 0 }));
    let tell = when_done(hits(of_user(), &format!("RESP({ECHOED})")));
    let scene = Wish::new(descriptors, vec![ask, tell]).start();
    let mut client = scene.client().await;
    let answer = client.get(&[("x-user", "alex"), (ECHOED, "101")]).await;
    assert_eq!(answer.status, 200, "nothing is used yet");
    eventually_async("the tokens of the first are counted", async || {
        (client.get(&[("x-user", "alex"), (ECHOED, "0")]).await.status == 429).then_some(())
    })
    .await;
    assert_eq!(client.get(&[("x-user", "berta"), (ECHOED, "0")]).await.status, 200);
}
