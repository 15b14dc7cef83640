//! The baseline that `benches/compare` measures against: a gRPC server on Weir's listener, threads and allocator,
//! without a decision.
//!
//! Each request is read as the service reads it, and answered with a constant of the size of the service's answer. The
//! difference to Weir is the cost of policy, limits and metrics. With `--generated` requests and answers are generated
//! messages, as in any tonic service; the difference is what Weir's codec saves.

use std::{
    error::Error,
    future::{Ready, ready},
    net::SocketAddr,
    sync::Arc,
    thread::available_parallelism,
};

use bytes::{Bytes, BytesMut};
use clap::Parser;
use futures_util::StreamExt;
use hyper::{Request, Response, body::Incoming};
use prost::Message;
use prost_types::Duration;
use tokio::{net::TcpListener, runtime::Builder};
use tonic::{Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;
use tower::service_fn;
use weir::{
    proto::{CheckBatchRequest, CheckBatchResponse, CheckRequest, CheckResponse, LevelResult},
    transport::{
        calls::Call,
        grpc::{GrpcSettings, codec},
        message::{self, CheckMessage},
        rls::{
            pb::{
                RateLimitRequest, RateLimitResponse,
                rate_limit_response::{Code, DescriptorStatus, RateLimit},
            },
            wire,
        },
    },
};
use weir_server::{
    Connected, ConnectionSettings, Drain, Listen, Listener, RuntimeKind, Serve, Server, Worker, Workers,
    metrics::ListenerMetrics,
};
use weir_telemetry::Registry;

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
    /// Let the system share out connections: each thread listens for itself, by SO_REUSEPORT
    #[arg(long)]
    reuse_port: bool,
    /// Read and write generated messages
    #[arg(long)]
    generated: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let cores = available_parallelism()?.get();
    let workers = if args.workers == 0 { cores } else { args.workers };
    let workers = Workers::start("baseline", workers, RuntimeKind::PerCore)?;
    Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(async {
        let mut servers = Vec::new();
        if args.reuse_port {
            for worker in workers.handles() {
                servers.push(server(listen_beside_others(&args.listen)?, vec![worker], &args));
            }
        } else {
            servers.push(server(workers.listen(&args.listen).await?, workers.handles(), &args));
        }
        println!("listening on {}", servers[0].listener.address());
        futures_util::future::join_all(servers.into_iter().map(Server::start)).await;
        Ok(())
    })
}

fn server(listener: Listener, workers: Vec<Worker>, args: &Args) -> Server<Baseline> {
    let defaults = GrpcSettings::default();
    Server {
        listener,
        service: Arc::new(Baseline { answers: Arc::new(Answers::new(args.levels)), generated: args.generated }),
        workers,
        settings: ConnectionSettings {
            name: "grpc",
            http2_only: true,
            max_connections: defaults.max_connections,
            max_streams: defaults.max_streams,
            traffic: defaults.traffic(),
        },
        metrics: ListenerMetrics::new(&Registry::default(), "grpc"),
        drain: Drain::default(),
        tls: None,
        clients: None,
    }
}

/// Listens on a port that other listeners of this process share.
fn listen_beside_others(listen: &Listen) -> Result<Listener, Box<dyn Error>> {
    let Listen::Tcp(address) = listen else { return Err("a unix socket has one listener".into()) };
    let address: SocketAddr = address.parse()?;
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4_096)?;
    Ok(Listener::Tcp(TcpListener::from_std(socket.into())?))
}

/// The answers with and without levels, and Envoy's: as messages and as their bytes.
struct Answers {
    full: (CheckResponse, BytesMut),
    summary: (CheckResponse, BytesMut),
    envoy: (RateLimitResponse, BytesMut),
}

const LIMIT: u64 = 1_000_000_001;
const REMAINING: u64 = 999_765_432;
/// A duration of usual length on the wire: seconds and nanoseconds are not 0.
const RESET_AFTER: Duration = Duration { seconds: 234, nanos: 569_000_000 };

impl Answers {
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
        let seconds = prost_types::Duration { seconds: RESET_AFTER.seconds, nanos: 0 };
        let statuses = all.iter().map(|level| DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(RateLimit { name: level.name.clone(), requests_per_unit: LIMIT as u32, unit: 0 }),
            limit_remaining: REMAINING as u32,
            duration_until_reset: Some(seconds),
            ..Default::default()
        });
        let statuses = statuses.take(1).collect();
        let envoy = RateLimitResponse { overall_code: Code::Ok.into(), statuses, ..Default::default() };
        let full = CheckResponse { levels: all, ..summary.clone() };
        Self { full: with_bytes(full), summary: with_bytes(summary), envoy: with_bytes(envoy) }
    }

    fn of(&self, summary_only: bool) -> &(CheckResponse, BytesMut) {
        if summary_only { &self.summary } else { &self.full }
    }

    fn check(&self, message: &[u8]) -> Result<BytesMut, Status> {
        let check = CheckMessage::read(message).map_err(unreadable)?;
        Ok(self.of(check.summary_only).1.clone())
    }

    fn batch(&self, message: &[u8]) -> Result<BytesMut, Status> {
        let mut out = BytesMut::new();
        for check in message::batch(message).map_err(unreadable)? {
            prost::encoding::bytes::encode(1, &self.check(check)?.freeze(), &mut out);
        }
        Ok(out)
    }

    fn envoy(&self, message: &[u8]) -> Result<BytesMut, Status> {
        wire::RateLimitRequest::read(message).map(|_| self.envoy.1.clone())
    }
}

fn with_bytes<M: Message>(message: M) -> (M, BytesMut) {
    let bytes = BytesMut::from(&message.encode_to_vec()[..]);
    (message, bytes)
}

fn unreadable(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The service.
#[derive(Clone)]
struct Baseline {
    answers: Arc<Answers>,
    generated: bool,
}

type Answer<T> = Ready<Result<tonic::Response<T>, Status>>;

fn answer<T>(answer: Result<T, Status>) -> Answer<T> {
    ready(answer.map(tonic::Response::new))
}

impl Baseline {
    /// Answers with the service's codec.
    async fn bytes(&self, request: Request<Incoming>) -> Response<Body> {
        let answers = &self.answers;
        let max = GrpcSettings::default().max_message_bytes;
        let unary = async |request, answer_to: fn(&Answers, &[u8]) -> Result<BytesMut, Status>| {
            let call = service_fn(|message: tonic::Request<Bytes>| answer(answer_to(answers, message.get_ref())));
            codec::unary(max).unary(call, request).await
        };
        match Call::of_path(request.uri().path()) {
            Some(Call::Check) => unary(request, Answers::check).await,
            Some(Call::CheckBatch) => unary(request, Answers::batch).await,
            Some(Call::ShouldRateLimit) => unary(request, Answers::envoy).await,
            Some(Call::CheckStream) => {
                let call = service_fn(|messages: tonic::Request<Streaming<Bytes>>| {
                    let answers = Arc::clone(answers);
                    answer(Ok(messages.into_inner().map(move |message| answers.check(&message?))))
                });
                codec::streaming(max).streaming(call, request).await
            }
            _ => Status::unimplemented("the baseline has no such call").into_http(),
        }
    }

    /// Answers with tonic's codec for generated messages.
    async fn messages(&self, request: Request<Incoming>) -> Response<Body> {
        let answers = &self.answers;
        match Call::of_path(request.uri().path()) {
            Some(Call::Check) => {
                let call = service_fn(|check: tonic::Request<CheckRequest>| {
                    answer(Ok(answers.of(check.get_ref().summary_only).0.clone()))
                });
                Grpc::new(ProstCodec::default()).unary(call, request).await
            }
            Some(Call::CheckBatch) => {
                let call = service_fn(|batch: tonic::Request<CheckBatchRequest>| {
                    let checks = batch.get_ref().checks.iter();
                    let results = checks.map(|check| answers.of(check.summary_only).0.clone()).collect();
                    answer(Ok(CheckBatchResponse { results }))
                });
                Grpc::new(ProstCodec::default()).unary(call, request).await
            }
            Some(Call::ShouldRateLimit) => {
                let call = service_fn(|_: tonic::Request<RateLimitRequest>| answer(Ok(answers.envoy.0.clone())));
                Grpc::new(ProstCodec::default()).unary(call, request).await
            }
            Some(Call::CheckStream) => {
                let call = service_fn(|checks: tonic::Request<Streaming<CheckRequest>>| {
                    let answers = Arc::clone(answers);
                    answer(Ok(checks.into_inner().map(move |check| Ok(answers.of(check?.summary_only).0.clone()))))
                });
                Grpc::new(ProstCodec::default()).streaming(call, request).await
            }
            _ => Status::unimplemented("the baseline has no such call").into_http(),
        }
    }
}

impl Serve for Baseline {
    type Body = Body;

    fn on(&self, _connected: Connected) -> Self {
        self.clone()
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        if self.generated { Box::pin(self.messages(request)).await } else { Box::pin(self.bytes(request)).await }
    }
}
