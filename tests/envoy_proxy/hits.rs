//! Requests with more than one hit, or none, separately for each descriptor.

use crate::{
    config::{fixed, give_back, headers, hits, when_done, without_hits},
    scene::Wish,
    support::eventually,
    upstream::ECHOED,
};

#[test]
fn each_descriptor_counts_its_own_hits() {
    let descriptors = "
  - key: user
    rate_limit: { unit: year, requests_per_unit: 10 }
  - key: all
    rate_limit: { unit: year, requests_per_unit: 6 }
";
    let rate_limits = vec![hits(headers(&[("x-user", "user")]), "REQ(x-cost)"), fixed("all", "requests")];
    let scene = Wish::new(descriptors, rate_limits).ratelimit_headers().start();
    let mut client = scene.client();
    let cost = |user, cost| [("x-user", user), ("x-cost", cost)];
    // The header shows the limit with less left: of the user's ten units or of the six requests.
    for (user, hits, status, remaining) in [
        ("alex", "4", 200, 5),
        ("alex", "5", 200, 1),
        ("alex", "1", 200, 0),
        ("alex", "0", 200, 0),
        ("alex", "1", 429, 0),
    ] {
        let answer = client.get(&cost(user, hits));
        let answered = (answer.status, answer.number("ratelimit-remaining"));
        assert_eq!(answered, (status, remaining), "{user} {hits}: {answer:?}");
    }
    // Five requests so far, whatever their hits.
    assert_eq!(client.get(&cost("carl", "1")).status, 200);
    assert_eq!(client.get(&cost("carl", "1")).status, 429);
}

#[test]
fn hits_can_be_charged_when_the_stream_is_done() {
    let descriptors = "
  - key: tokens
    rate_limit: { unit: year, requests_per_unit: 100 }
";
    let of_user = || headers(&[("x-user", "tokens")]);
    let tell = when_done(hits(of_user(), &format!("RESP({ECHOED})")));
    let scene = Wish::new(descriptors, vec![without_hits(of_user()), tell]).start();
    let mut client = scene.client();
    let answer = client.get(&[("x-user", "alex"), (ECHOED, "101")]);
    assert_eq!(answer.status, 200, "nothing is used yet");
    eventually("the tokens of the first are counted", || {
        let answer = client.get(&[("x-user", "alex"), (ECHOED, "0")]);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("100, 100;w=31536000"));
        assert!(matches!(answer.number("x-ratelimit-remaining"), 0 | 100), "only what is told counts: {answer:?}");
        (answer.status == 429).then_some(())
    });
    assert_eq!(client.get(&[("x-user", "berta"), (ECHOED, "0")]).status, 200);
}

#[test]
fn unused_hits_can_be_refunded_when_the_stream_is_done() {
    let descriptors = "
  - key: tokens
    rate_limit: { unit: year, requests_per_unit: 10 }
";
    let of_user = || headers(&[("x-user", "tokens")]);
    let take = hits(of_user(), "REQ(x-cost)");
    let unused = give_back(when_done(hits(of_user(), &format!("RESP({ECHOED})"))));
    let rate_limits = vec![take, unused, without_hits(headers(&[("x-look", "tokens")]))];
    let scene = Wish::new(descriptors, rate_limits).ratelimit_headers().start();
    let mut client = scene.client();
    let answer = client.get(&[("x-user", "alex"), ("x-cost", "8"), (ECHOED, "5")]);
    assert_eq!((answer.status, answer.number("ratelimit-remaining")), (200, 2));
    let left = || {
        let left = client.get(&[("x-look", "alex")]).number("ratelimit-remaining");
        assert!(matches!(left, 2 | 7), "{left}");
        (left == 7).then_some(())
    };
    eventually("five of the eight are given back", left);
    assert_eq!(client.get(&[("x-user", "alex"), ("x-cost", "8"), (ECHOED, "8")]).status, 429);
}
