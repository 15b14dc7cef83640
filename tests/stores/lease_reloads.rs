//! Leases whose limit changes, on replicas that reload at different times.

use std::sync::atomic::Ordering::Relaxed;

use weir::proto::CheckRequest;
use weir_test_redis::{Options, Server as Redis};

use crate::{
    leases::{TRADE, ask, flood, lasting, left},
    service::{patient, runtime},
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
