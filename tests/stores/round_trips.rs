//! The work of one round trip to the store is bounded, so that a large batch does not delay other clients.

use weir::proto::{CheckBatchRequest, CheckRequest, Limit};
use weir_test_redis::{Options, Server};

use crate::{
    service::{patient, runtime},
    support::requests::{check, gcra, with_limits},
};

/// Maximum size of one batch.
const CHECKS: usize = 1_000;
const LIMITS: usize = 16;
/// Maximum number of levels in one round trip.
const MAX_WORK: usize = 2_048;

#[test]
fn a_large_batch_is_split_into_several_round_trips() {
    let redis = Server::start(Options::socket());
    let service = patient(&redis.url()).start();
    let limits: Vec<_> = (0..LIMITS).map(|number| Limit { name: format!("limit{number}"), ..gcra(9, 9, 1) }).collect();
    let heavy = |number: usize| {
        let check = with_limits(check(&["heavy", &number.to_string()]), limits.clone());
        CheckRequest { summary_only: true, ..check }
    };
    let batch = CheckBatchRequest { checks: (0..CHECKS).map(heavy).collect() };
    let answer = runtime().block_on(async { service.client().await.check_batch(batch).await });
    for result in answer.expect("an answer").into_inner().results {
        assert!(result.allowed && !result.degraded && result.error.is_none(), "{result:?}");
    }
    let round_trips = service.metric("weir_store_duration_seconds_count{store=\"redis\",op=\"decide\"}");
    assert!(round_trips >= (CHECKS * LIMITS).div_ceil(MAX_WORK) as f64, "{round_trips}");
}
