//! The floor that `benches/compare` measures against: Weir's listener, threads, allocator and reading of messages, and no
//! decision.
//!
//! Each request is read as the service reads it, and answered with a constant as large as the service's answer would
//! be. What Weir takes above this is what policy, limits and metrics cost.

use std::{
    error::Error,
    net::SocketAddr,
    sync::Arc,
    task::{Poll, ready},
    thread::available_parallelism,
};

use bytes::{BufMut, Bytes, BytesMut};
use clap::Parser;
use hyper::{Request, Response, body::Incoming};
use prost::Message;
use prost_types::Duration;
use tokio::{net::TcpListener, runtime::Builder};
use tonic::Status;
use weir::{
    auth::Access,
    proto::{CheckResponse, LevelResult},
    settings::Listen,
    telemetry::Metrics,
    transport::{
        ConnectionSettings, Drain, Listener, Server, Workers,
        grpc::{
            GrpcSettings,
            body::{self, CallBody},
            frames::{self, Messages},
            path,
        },
        message::{self, CheckMessage},
        rls::{
            pb::{
                RateLimitResponse,
                rate_limit_response::{Code, DescriptorStatus, RateLimit},
            },
            wire::RateLimitRequest,
        },
        server::Serve,
        status::Refused,
        workers::{RuntimeKind, Worker},
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
    /// Let the system share out connections: each thread listens for itself, by SO_REUSEPORT
    #[arg(long)]
    reuse_port: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let cores = available_parallelism()?.get();
    let workers = if args.workers == 0 { cores } else { args.workers };
    let workers = Workers::start("floor", workers, RuntimeKind::PerCore)?;
    Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(async {
        let mut servers = Vec::new();
        if args.reuse_port {
            for worker in workers.handles() {
                servers.push(server(listen_beside_others(&args.listen)?, vec![worker], args.levels));
            }
        } else {
            servers.push(server(Listener::bind(&args.listen).await?, workers.handles(), args.levels));
        }
        println!("listening on {}", servers[0].listener.address());
        futures_util::future::join_all(servers.into_iter().map(Server::run)).await;
        Ok(())
    })
}

fn server(listener: Listener, workers: Vec<Worker>, levels: u8) -> Server<Floor> {
    let defaults = GrpcSettings::default();
    Server {
        listener,
        routes: Floor::new(levels),
        workers,
        settings: ConnectionSettings {
            name: "grpc",
            http2_only: true,
            max_connections: defaults.max_connections,
            max_streams: defaults.max_streams,
            traffic: defaults.traffic(),
        },
        meter: Metrics::new().listener("grpc"),
        drain: Drain::default(),
        tls: None,
        gate: None,
        watch: None,
    }
}

/// Listens on a port on which others of this process do too.
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

/// Answers with and without levels, and Envoy's, as bytes.
#[derive(Clone)]
struct Floor {
    full: Bytes,
    summary: Bytes,
    envoy: Bytes,
    max_message_bytes: usize,
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
        Self {
            summary: summary.encode_to_vec().into(),
            full: CheckResponse { levels: all, ..summary }.encode_to_vec().into(),
            envoy: envoy.encode_to_vec().into(),
            max_message_bytes: GrpcSettings::default().max_message_bytes,
        }
    }

    fn answer(&self, message: &[u8]) -> Result<&Bytes, Status> {
        let check = CheckMessage::read(message).map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(if check.summary_only { &self.summary } else { &self.full })
    }

    async fn unary(&self, path: &str, body: Incoming) -> Result<Bytes, Status> {
        let message = Messages::new(body, self.max_message_bytes).only().await?;
        match path {
            path::CHECK => Ok(framed(self.answer(&message)?)),
            path::SHOULD_RATE_LIMIT => {
                RateLimitRequest::read(&message)?;
                Ok(framed(&self.envoy))
            }
            path::CHECK_BATCH => self.batch(&message),
            _ => Err(Status::unimplemented("the floor has no such call")),
        }
    }

    fn batch(&self, message: &[u8]) -> Result<Bytes, Status> {
        let checks = message::batch(message).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let mut out = BytesMut::new();
        let start = frames::begin(&mut out);
        for check in checks {
            prost::encoding::bytes::encode(1, self.answer(check)?, &mut out);
        }
        frames::finish(&mut out, start);
        Ok(out.freeze())
    }

    fn stream(self: Arc<Self>, body: Incoming) -> Response<CallBody> {
        let mut messages = Messages::new(body, self.max_message_bytes);
        body::many(None, move |cx, out| {
            let before = out.len();
            let taken = messages.take_while(|message| {
                let start = frames::begin(out);
                // What is no check has no answer, which whoever measures will miss.
                out.put_slice(self.answer(message).map_or(&[], |answer| answer));
                frames::finish(out, start);
                out.len() < 16 << 10
            });
            match taken {
                Err(status) => Poll::Ready(Some(status)),
                Ok(()) if out.len() > before => Poll::Ready(None),
                Ok(()) => Poll::Ready(match ready!(messages.poll_more(cx)) {
                    Ok(true) => None,
                    Ok(false) => Some(Status::ok("")),
                    Err(status) => Some(status),
                }),
            }
        })
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    let start = frames::begin(&mut out);
    out.put_slice(message);
    frames::finish(&mut out, start);
    out.freeze()
}

impl Serve for Floor {
    type Body = CallBody;

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<CallBody> {
        let path = match request.uri().path() {
            path::CHECK_STREAM => return self.stream(request.into_body()),
            path::CHECK => path::CHECK,
            path::CHECK_BATCH => path::CHECK_BATCH,
            path::SHOULD_RATE_LIMIT => path::SHOULD_RATE_LIMIT,
            _ => "",
        };
        body::unary(self.unary(path, request.into_body()).await)
    }

    fn access(_path: &str) -> Access {
        Access::Open
    }

    fn refuse(refused: Refused) -> Response<CallBody> {
        body::unary(Err(refused.into()))
    }
}
