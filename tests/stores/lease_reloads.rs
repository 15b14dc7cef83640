//! Leases whose limit changes, on replicas that reload at different times.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use weir::proto::CheckRequest;
use weir_test_redis::{Options, Server as Redis, eventually};

use crate::{
    leases::{HELD, TRADE, ask, flood, lasting, left},
    service::{patient, runtime, window},
    support::requests::check,
};

/// One replica has the raised limit already. The other one returns its lease under the old limit, which counts no more
/// than it has, or than twice that.
#[test]
fn a_replica_that_reloads_a_raised_limit_late_cuts_nothing() {
    let redis = Redis::start(Options::socket());
    for limit in [
        "sliding_log: { count: COUNT, period: 1d }",
        "sliding_buckets: { count: COUNT, period: 1d, resolution: 1h }",
        "leaky_bucket: { size: COUNT, drip_rate: 1d }",
    ] {
        let of = |count: &str| patient(&redis.url()).policy(&lasting(&limit.replace("COUNT", count))).start();
        let (mut late, raised) = (of("200"), of("4000"));
        let seen = runtime().block_on(flood(std::slice::from_ref(&late), |seen| seen.leased.load(Relaxed) > 50));
        let admitted = runtime()
            .block_on(ask(&raised, CheckRequest { cost: Some(600), ..check(&TRADE) }))
            .allowed
            .then_some(600 + seen.admitted.load(Relaxed));
        late.stop();
        assert_eq!(Some(4_000 - left(&raised)), admitted, "{limit}");
    }
}

/// Checks of other keys show that the policy has changed. Otherwise units are held for half of their minute.
#[test]
fn a_policy_that_turns_leases_off_returns_what_is_held() {
    const QUOTA: u64 = 1_000_000;
    let redis = Redis::start(Options::socket());
    let policy = lasting(&window(QUOTA));
    let service = patient(&redis.url()).policy(&policy).start();
    let seen = runtime().block_on(flood(std::slice::from_ref(&service), |seen| seen.leased.load(Relaxed) > 1_000));
    eventually("it holds units", || if service.metric(HELD) > 0.0 { Ok(()) } else { Err("none".to_owned()) });
    service.replace_policy(&policy.replace("lease: { ttl: 1m }", "lease: false"));
    let replaced = Instant::now();
    eventually("all is returned", || {
        runtime().block_on(ask(&service, check(&["user", "other"])));
        let held = service.metric(HELD);
        if held == 0.0 { Ok(()) } else { Err(format!("{held} held")) }
    });
    assert!(replaced.elapsed() < Duration::from_secs(20), "{:?}", replaced.elapsed());
    let admitted = seen.admitted.load(Relaxed);
    eventually("only what was admitted is charged", || match left(&service) {
        left if left == QUOTA - admitted => Ok(()),
        left => Err(format!("{left} left after {admitted}")),
    });
}
