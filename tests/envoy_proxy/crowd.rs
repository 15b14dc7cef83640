//! Many concurrent requests are admitted exactly up to the limit.

use futures_util::future::join_all;

use crate::{
    config::{fixed, headers},
    scene::Wish,
};

const REQUESTS: usize = 10_000;
const AT_ONCE: usize = 64;
const LIMIT: usize = 1_234;

#[tokio::test]
async fn concurrent_requests_are_admitted_exactly_up_to_the_limit() {
    // No window ends during the test, and a request without a decision would get status 500.
    let descriptors = format!(
        "
  - key: user
    rate_limit: {{ unit: year, requests_per_unit: {LIMIT} }}
  - key: all
    rate_limit: {{ unit: month, requests_per_unit: {REQUESTS} }}
"
    );
    let rate_limits = vec![headers(&[("x-user", "user")]), fixed("all", "requests")];
    let scene = Wish::new(&descriptors, rate_limits).start();
    let clients = (0..AT_ONCE).map(async |number| {
        let share = REQUESTS / AT_ONCE + usize::from(number < REQUESTS % AT_ONCE);
        scene.client().await.statuses(share, &[("x-user", "alex")]).await
    });
    let statuses = join_all(clients).await.concat();
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(429), statuses.len()), (LIMIT, REQUESTS - LIMIT, REQUESTS));
    assert_eq!(scene.upstream.served(), LIMIT as u64);
    assert_eq!(scene.proxy.counted("over_limit"), (REQUESTS - LIMIT) as u64);
    assert_eq!(scene.proxy.counted("error"), 0);
    // All of them were counted for the other descriptor too.
    assert_eq!(scene.client().await.get(&[("x-user", "berta")]).await.status, 429);
}
