//! Reservations over gRPC, and many clients that reserve concurrently.

use std::time::Duration;

use futures_util::future::join_all;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tonic::{Status, transport::Channel};
use weir::proto::{
    CancelRequest, CancelResponse, CheckRequest, CommitRequest, CommitResponse, ExtendRequest, ExtendResponse,
    ReserveRequest, ReserveResponse, rate_limiter_client::RateLimiterClient,
};

use super::{
    Server,
    requests::{check, peek},
};

pub type Client = RateLimiterClient<Channel>;

/// An hour in milliseconds.
pub const HOUR: i64 = 3_600_000;
/// Timeout of a crowd.
const TIMEOUT: Duration = Duration::from_secs(120);
const CLIENTS: usize = 64;
/// Units that each client of a crowd reserves, and the most that it uses.
const ESTIMATE: i64 = 2_000;
const MOST: i64 = 5_000;

/// Converts milliseconds to a message.
pub fn millis(millis: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds: millis / 1_000, nanos: (millis % 1_000 * 1_000_000) as i32 })
}

/// Makes a request that reserves units of a key.
pub fn wanted<S: ToString>(key: &[S], cost: i64, ttl_ms: i64) -> ReserveRequest {
    let check = CheckRequest { cost: Some(cost), ..check(key) };
    ReserveRequest { check: Some(check), ttl: millis(ttl_ms), on_expiry: 0 }
}

pub async fn reserve(client: &mut Client, request: ReserveRequest) -> ReserveResponse {
    client.reserve(request).await.expect("an answer").into_inner()
}

pub async fn commit(client: &mut Client, hold: &str, actual: Option<i64>) -> Result<CommitResponse, Status> {
    client.commit(CommitRequest { hold: hold.to_owned(), actual }).await.map(tonic::Response::into_inner)
}

pub async fn cancel(client: &mut Client, hold: &str) -> Result<CancelResponse, Status> {
    client.cancel(CancelRequest { hold: hold.to_owned() }).await.map(tonic::Response::into_inner)
}

pub async fn extend(client: &mut Client, hold: &str, ttl_ms: i64) -> Result<ExtendResponse, Status> {
    let request = ExtendRequest { hold: hold.to_owned(), ttl: millis(ttl_ms) };
    client.extend(request).await.map(tonic::Response::into_inner)
}

/// Returns the remaining units of a key.
pub async fn left<S: ToString>(client: &mut Client, key: &[S]) -> u64 {
    client.check(peek(key)).await.expect("an answer").into_inner().remaining
}

/// Returns a settlement that is not degraded.
pub fn settled(charged: i64, refunded: i64, overage: u64) -> CommitResponse {
    CommitResponse { charged, refunded, overage, degraded: false }
}

/// The totals of a crowd.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub charged: u64,
    /// Units charged beyond the reserved ones.
    pub overage: u64,
    pub refused: u64,
}

/// Runs clients that reserve [`ESTIMATE`] units of a key, spread over the services, and use 300 to [`MOST`], until the
/// limit refuses them. Some cancel; all settle twice.
pub async fn crowd(services: &[Server], key: &[&str]) -> Spent {
    let clients = (0..CLIENTS).map(|number| one(&services[number % services.len()], key, number as u64));
    let spent = tokio::time::timeout(TIMEOUT, join_all(clients)).await.expect("in time");
    spent.into_iter().fold(Spent::default(), |all, one| Spent {
        charged: all.charged + one.charged,
        overage: all.overage + one.overage,
        refused: all.refused + one.refused,
    })
}

/// Returns the most units by which a crowd may exceed a limit: each client has one reservation, and its highest
/// overage.
pub fn most_overage() -> u64 {
    CLIENTS as u64 * (MOST - ESTIMATE).unsigned_abs()
}

async fn one(service: &Server, key: &[&str], seed: u64) -> Spent {
    let (mut client, mut rng) = (service.client().await, ChaCha8Rng::seed_from_u64(seed));
    let mut spent = Spent::default();
    while spent.refused < 3 {
        let answer = reserve(&mut client, wanted(key, ESTIMATE, HOUR)).await;
        let decision = answer.decision.expect("a decision");
        assert!(!decision.degraded, "{decision:?}");
        if !decision.allowed {
            spent.refused += 1;
            continue;
        }
        if rng.random_ratio(1, 8) {
            for _ in 0..2 {
                let cancelled = cancel(&mut client, &answer.hold).await.expect("settled");
                assert_eq!((cancelled.charged, cancelled.refunded), (0, ESTIMATE));
            }
            continue;
        }
        let actual = rng.random_range(300..=MOST);
        let (refunded, overage) = ((ESTIMATE - actual).max(0), (actual - ESTIMATE).max(0).unsigned_abs());
        for actual in [actual, ESTIMATE] {
            let answer = commit(&mut client, &answer.hold, Some(actual)).await.expect("settled");
            assert_eq!((answer.refunded, answer.overage), (refunded, overage));
        }
        spent.charged += actual.unsigned_abs();
        spent.overage += overage;
    }
    spent
}
