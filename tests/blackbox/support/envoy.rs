//! A client of Envoy's rate-limit service that behaves like Envoy.

use tonic::{Request, Status, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;
use weir_envoy::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{RateLimitRequest, RateLimitResponse},
};

const CALL: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Makes a descriptor of alternating keys and values, with its own hits; negative ones are refunded.
pub fn descriptor(key: &[&str], hits: i64) -> RateLimitDescriptor {
    let entry = |pair: &[&str]| Entry { key: pair[0].to_owned(), value: pair[1].to_owned() };
    RateLimitDescriptor {
        entries: key.chunks_exact(2).map(entry).collect(),
        hits_addend: Some(hits.unsigned_abs()),
        is_negative_hits: hits < 0,
        ..Default::default()
    }
}

/// Calls ShouldRateLimit.
pub async fn should_rate_limit(channel: Channel, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    ask(channel, Request::new(request)).await
}

/// Calls ShouldRateLimit with metadata.
pub async fn ask(channel: Channel, request: Request<RateLimitRequest>) -> Result<RateLimitResponse, Status> {
    let mut service = Grpc::new(channel);
    service.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let answer = service.unary(request, PathAndQuery::from_static(CALL), codec).await?;
    Ok(answer.into_inner())
}
