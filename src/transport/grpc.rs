//! The service `weir.v1.RateLimiter`, with health and reflection beside it.

use std::{pin::Pin, time::Instant};

use axum::Router;
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use tonic::{Request, Response, Status, Streaming, service::Routes};
use tonic_health::server::HealthReporter;

use super::{
    decode::{self, MAX_BATCH},
    drain::Drain,
    ending::Ending,
    observe::Checks,
    rls::{self, EnvoySettings, Rls, generated::rate_limit_service_server::RateLimitServiceServer},
    status::Refused,
    stream,
};
use crate::{
    proto::{
        self, CheckBatchRequest, CheckBatchResponse, CheckRequest, CheckResponse, ResetRequest, ResetResponse,
        rate_limiter_server::{RateLimiter, RateLimiterServer},
    },
    settings::Listen,
    store::Store,
    telemetry::Transport,
};

/// The service's full name, as health checks ask for it.
pub const SERVICE: &str = "weir.v1.RateLimiter";

/// The gRPC port's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GrpcSettings {
    /// Where to listen.
    pub listen: Listen,
    /// Serving threads; 0: one for each core.
    pub workers: usize,
    /// Most connections; further ones are closed at once.
    pub max_connections: usize,
    /// Most concurrent calls of one connection.
    pub max_streams: u32,
    /// Largest message that is read.
    pub max_message_bytes: usize,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        Self {
            listen: Listen::loopback(8081),
            workers: 0,
            max_connections: 10_000,
            max_streams: 1_024,
            max_message_bytes: 1 << 20,
        }
    }
}

/// The RPCs over one limiter.
pub struct Grpc<S> {
    checks: Checks<S>,
    drain: Drain,
}

type Answers = Pin<Box<dyn Stream<Item = Result<CheckResponse, Status>> + Send>>;

#[tonic::async_trait]
impl<S: Store> RateLimiter for Grpc<S> {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let since = Instant::now();
        let snapshot = self.checks.limiter().snapshot();
        let answer = self.checks.check(&snapshot, Ok(request.into_inner()), Transport::Grpc).await;
        self.checks.timed(Transport::Grpc, since);
        Ok(Response::new(answer?))
    }

    async fn check_batch(&self, request: Request<CheckBatchRequest>) -> Result<Response<CheckBatchResponse>, Status> {
        let since = Instant::now();
        let checks = request.into_inner().checks;
        if checks.len() > MAX_BATCH {
            return Err(Refused::from(decode::too_many_checks()).into());
        }
        let snapshot = self.checks.limiter().snapshot();
        let results = self.checks.check_all(&snapshot, checks.into_iter().map(Ok), Transport::GrpcBatch).await;
        self.checks.timed(Transport::GrpcBatch, since);
        Ok(Response::new(CheckBatchResponse { results }))
    }

    type CheckStreamStream = Answers;

    async fn check_stream(&self, request: Request<Streaming<CheckRequest>>) -> Result<Response<Answers>, Status> {
        let answers = stream::answers(self.checks.clone(), request.into_inner(), self.drain.clone());
        Ok(Response::new(Box::pin(answers)))
    }

    async fn reset(&self, request: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        let message = request.into_inner();
        let reset = decode::reset(&message).map_err(Refused::from)?;
        let done = self.checks.limiter().reset(&reset, message.subtree).await.map_err(Refused::from)?;
        Ok(Response::new(ResetResponse { existed: done.existed, scanned: done.scanned }))
    }
}

/// All that is served on the gRPC port, and what reports its health.
///
/// # Errors
/// When the descriptors compiled into this binary cannot be read.
pub async fn routes<S: Store>(
    checks: Checks<S>,
    drain: Drain,
    max_message_bytes: usize,
    envoy: EnvoySettings,
) -> Result<(Router, HealthReporter), tonic_reflection::server::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    report_serving(&reporter, true).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(rls::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let rls = RateLimitServiceServer::new(Rls::new(checks.clone(), envoy)).max_decoding_message_size(max_message_bytes);
    let limiter =
        RateLimiterServer::new(Grpc { checks, drain: drain.clone() }).max_decoding_message_size(max_message_bytes);
    let routes = Routes::new(limiter)
        .add_service(rls)
        .add_service(Ending::new(health, drain.clone()))
        .add_service(Ending::new(reflection().build_v1()?, drain.clone()))
        .add_service(Ending::new(reflection().build_v1alpha()?, drain));
    Ok((routes.prepare().into_axum_router(), reporter))
}

/// Tells those who ask for health whether this service is to be called.
pub async fn report_serving(reporter: &HealthReporter, serving: bool) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    for service in ["", SERVICE, rls::SERVICE, rls::HEALTH_NAME] {
        reporter.set_service_status(service, if serving { Serving } else { NotServing }).await;
    }
}
