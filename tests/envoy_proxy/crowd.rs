//! Many concurrent requests are admitted exactly up to the limit.

use std::thread;

use crate::{
    config::{fixed, headers},
    scene::Wish,
};

const REQUESTS: usize = 10_000;
const AT_ONCE: usize = 64;
const LIMIT: usize = 1_234;

#[test]
fn concurrent_requests_are_admitted_exactly_up_to_the_limit() {
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
    let share = |number| REQUESTS / AT_ONCE + usize::from(number < REQUESTS % AT_ONCE);
    let client = |number| scene.client().statuses(share(number), &[("x-user", "alex")]);
    let statuses = thread::scope(|scope| {
        let clients: Vec<_> = (0..AT_ONCE).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("all are answered")).collect::<Vec<_>>()
    });
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(429), statuses.len()), (LIMIT, REQUESTS - LIMIT, REQUESTS));
    assert_eq!(scene.upstream.served(), LIMIT as u64);
    assert_eq!(scene.proxy.counted("over_limit"), (REQUESTS - LIMIT) as u64);
    assert_eq!(scene.proxy.counted("error"), 0);
    // All of them were counted for the other descriptor too.
    assert_eq!(scene.client().get(&[("x-user", "berta")]).status, 429);
}
