//! Reservations over gRPC.

use tonic::{Status, transport::Channel};
use weir::proto::{
    CancelRequest, CancelResponse, CheckRequest, CommitRequest, CommitResponse, ExtendRequest, ExtendResponse,
    ReserveRequest, ReserveResponse, rate_limiter_client::RateLimiterClient,
};

use super::requests::{check, peek};

pub type Client = RateLimiterClient<Channel>;

/// An hour in milliseconds.
pub const HOUR: i64 = 3_600_000;

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
