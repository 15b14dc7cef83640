//! Leases of keys that are banned for a time.

use std::sync::atomic::Ordering::Relaxed;

use weir_test_redis::{Options, Server as Redis, eventually};

use crate::{
    leases::{HELD, TRADE, ask, flood, lasting, left},
    service::{patient, runtime, window},
    support::requests::check,
};

/// What the store granted is spent, held, given back or burnt, and only what is spent or burnt is charged.
#[test]
fn bans_of_a_leased_key_and_their_ends_lose_no_unit() {
    const QUOTA: u64 = 1_000_000;
    let redis = Redis::start(Options::socket());
    let service = patient(&redis.url()).policy(&lasting(&window(QUOTA))).start();
    let (mut admitted, mut leased, mut others) = (0, 0, 0);
    for _ in 0..3 {
        let seen = runtime().block_on(flood(std::slice::from_ref(&service), |seen| seen.leased.load(Relaxed) > 1_000));
        (admitted, leased) = (admitted + seen.admitted.load(Relaxed), leased + seen.leased.load(Relaxed));
        eventually("it holds units", || if service.metric(HELD) > 0.0 { Ok(()) } else { Err("none".to_owned()) });
        assert_eq!(service.run(&["ban", "user/alex", "--reason", "abuse", "--for", "1h"]).code, 0);
        assert!(!runtime().block_on(ask(&service, check(&TRADE))).allowed, "a ban is in force at once where it is set");
        eventually("all is given back", || {
            // A check that meets the store shows that the policy has changed: of a key that is not hot.
            others += 1;
            runtime().block_on(ask(&service, check(&["user", &others.to_string()])));
            let held = service.metric(HELD);
            if held == 0.0 { Ok(()) } else { Err(format!("{held} held")) }
        });
        assert_eq!(service.run(&["unban", "user/alex"]).code, 0);
        // A grant may be given back a moment after it is not held any more.
        eventually("only what was admitted is charged", || match left(&service) {
            left if left == QUOTA - admitted => Ok(()),
            left => Err(format!("{left} left after {admitted}")),
        });
    }
    let metric = |name: &str| service.metric(&format!("weir_leases_{name}_units_total"));
    assert_eq!((metric("spent"), metric("burnt")), (leased as f64, 0.0));
    assert!(metric("granted") >= leased as f64);
}
