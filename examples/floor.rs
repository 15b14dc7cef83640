//! The floor that `benches/compare` measures against: Weir's listener, threads, allocator, codec and messages, and no
//! decision.
//!
//! Each request is read as the service reads it, and answered with a constant as large as the service's answer would
//! be. What Weir takes above this is what policy, limits and metrics cost.

use std::{error::Error, pin::Pin, thread::available_parallelism};

use clap::Parser;
use futures_util::{Stream, StreamExt};
use prost_types::Duration;
use tokio::runtime::Builder;
use tonic::{Request, Response, Status, Streaming, service::Routes};
use weir::{
    proto::{
        CheckBatchRequest, CheckBatchResponse, CheckRequest, CheckResponse, LevelResult, ResetRequest, ResetResponse,
        rate_limiter_server::{RateLimiter, RateLimiterServer},
    },
    settings::Listen,
    telemetry::Metrics,
    transport::{
        ConnectionSettings, Drain, Listener, Server, Workers,
        grpc::GrpcSettings,
        rls::{
            generated::rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
            pb::{
                RateLimitResponse,
                rate_limit_response::{Code, DescriptorStatus, RateLimit},
            },
            wire::RateLimitRequest,
        },
    },
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Answer every check with a constant
#[derive(Parser)]
struct Args {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:8081")]
    listen: Listen,
    /// Levels in an answer
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    levels: u8,
    /// Serving threads; 0: one for each core
    #[arg(long, default_value_t = 0)]
    workers: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let cores = available_parallelism()?.get();
    let workers = Workers::start("floor", if args.workers == 0 { cores } else { args.workers })?;
    let floor = Floor::new(args.levels);
    let limiter = RateLimiterServer::new(floor.clone());
    let routes = Routes::new(limiter).add_service(RateLimitServiceServer::new(floor)).prepare().into_axum_router();
    let defaults = GrpcSettings::default();
    Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(async {
        let server = Server {
            listener: Listener::bind(&args.listen).await?,
            routes,
            workers: workers.handles(),
            settings: ConnectionSettings {
                http2_only: true,
                max_connections: defaults.max_connections,
                max_streams: defaults.max_streams,
            },
            meter: Metrics::new().listener("grpc"),
            drain: Drain::default(),
        };
        println!("listening on {}", server.listener.address());
        server.run().await;
        Ok(())
    })
}

/// Answers with and without levels, and Envoy's.
#[derive(Clone)]
struct Floor {
    full: CheckResponse,
    summary: CheckResponse,
    envoy: RateLimitResponse,
}

const LIMIT: u64 = 1_000_000_001;
const REMAINING: u64 = 999_765_432;
/// Of a usual length on the wire: its parts are not 0.
const RESET_AFTER: Duration = Duration { seconds: 234, nanos: 569_000_000 };

impl Floor {
    fn new(levels: u8) -> Self {
        let level = |name: &str, depth| LevelResult {
            name: name.to_owned(),
            depth,
            allowed: true,
            limit: LIMIT,
            remaining: REMAINING,
            reset_after: Some(RESET_AFTER),
            wait: Some(Duration::default()),
            ..Default::default()
        };
        let mut all = vec![level("user/*#gcra0", 2), level("user/*/trade#token_bucket0", 3)];
        all.truncate(levels.into());
        let summary = CheckResponse {
            allowed: true,
            limit: LIMIT,
            remaining: REMAINING,
            reset_after: Some(RESET_AFTER),
            wait: Some(Duration::default()),
            binding: Some(u32::from(levels) - 1),
            ..Default::default()
        };
        let seconds = envoy_types::pb::google::protobuf::Duration { seconds: RESET_AFTER.seconds, nanos: 0 };
        let statuses = all.iter().map(|level| DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(RateLimit { name: level.name.clone(), requests_per_unit: LIMIT as u32, unit: 0 }),
            limit_remaining: REMAINING as u32,
            duration_until_reset: Some(seconds),
            ..Default::default()
        });
        let statuses = statuses.take(1).collect();
        let envoy = RateLimitResponse { overall_code: Code::Ok.into(), statuses, ..Default::default() };
        Self { full: CheckResponse { levels: all, ..summary.clone() }, summary, envoy }
    }

    fn answer(&self, request: &CheckRequest) -> CheckResponse {
        if request.summary_only { self.summary.clone() } else { self.full.clone() }
    }
}

#[tonic::async_trait]
impl RateLimiter for Floor {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        Ok(Response::new(self.answer(request.get_ref())))
    }

    async fn check_batch(&self, request: Request<CheckBatchRequest>) -> Result<Response<CheckBatchResponse>, Status> {
        let results = request.get_ref().checks.iter().map(|check| self.answer(check)).collect();
        Ok(Response::new(CheckBatchResponse { results }))
    }

    type CheckStreamStream = Pin<Box<dyn Stream<Item = Result<CheckResponse, Status>> + Send>>;

    async fn check_stream(
        &self,
        request: Request<Streaming<CheckRequest>>,
    ) -> Result<Response<Self::CheckStreamStream>, Status> {
        let floor = self.clone();
        let answers = request.into_inner().map(move |check| Ok(floor.answer(&check?)));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn reset(&self, _: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        Ok(Response::new(ResetResponse::default()))
    }
}

#[tonic::async_trait]
impl RateLimitService for Floor {
    async fn should_rate_limit(&self, _: Request<RateLimitRequest>) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(self.envoy.clone()))
    }
}
