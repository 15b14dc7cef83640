//! Many clients of many replicas on one key are admitted exactly the limit, like a single client.

use weir_test_redis::{Options, Server};

use crate::{
    service::{replicas, runtime},
    support::crowd,
};

/// Fewer units than the clients request together.
const UNITS: u64 = 700;

#[test]
fn four_replicas_on_one_redis_admit_exactly_the_limit() {
    let redis = Server::start(Options::socket());
    let services = replicas(&redis.url(), &crowd::schema(UNITS));
    runtime().block_on(async {
        for algorithm in weir_core::algorithm::rates() {
            crowd::gets_exactly(crowd::CLIENTS, UNITS, &services, algorithm, "alex").await;
        }
    });
}
