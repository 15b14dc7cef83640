//! The gRPC port, served by tonic. The calls that decide (`codec`, `call`, `batch`, `stream`) and health checks
//! (`health`) pass through its server as encoded messages; reflection is tonic's own (`reflection`). Calls whose message
//! has not arrived are bounded ([`incomplete_calls`](super::incomplete_calls)), and so are unread answers (`streaming`).

pub mod answer;
pub mod batch;
pub mod call;
pub mod codec;
mod deadline;
mod health;
mod lease;
mod messages;
mod quota_stream;
mod reflection;
pub mod reservation;
mod settings;
mod stream;
mod streaming;
mod termination;
mod waiting;

use std::{
    pin::pin,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
};
use tonic::{Status, body::Body};
use tower::service_fn;
use tracing::warn;
use weir_server::{
    AnswerBytes, ConcurrencyLimit, Connected, Drain, Overload, SMALL_ANSWER_BYTES, metrics::ListenerMetrics,
};
use weir_store::Store;
use weir_telemetry::{LogLimit, request::Surface};

use super::{
    admin::{AdminCall, AdminService},
    audit::Actor,
    authentication::ClientName,
    check_service::{CallContext, CheckService},
    incomplete_calls::{ConnectionCalls, Expected, IncompleteCalls},
    message::read_with_check,
    rlqs::Quotas,
    rls::{EnvoySettings, Rls, wire::RateLimitRequest},
    routes::{self, path},
    status::Rejected,
};
use crate::{auth::Access, telemetry::Transport};
use deadline::Deadline;
use health::Health;
pub use health::ServingReporter;
pub use messages::{LARGE_MESSAGE_BYTES, READ_AHEAD_BYTES};
pub use reflection::MAX_REFLECTIONS;
use reflection::Reflection;
use reservation::Settling;

pub use settings::GrpcSettings;

/// Maximum number of health watches of a connection: a client has one for each service that it calls.
pub const MAX_WATCHES: usize = 4;

/// Limits the log lines about messages that are too large to one a minute.
static TOO_LARGE: LazyLock<LogLimit> = LazyLock::new(|| LogLimit::every(Duration::from_secs(60)));

/// The gRPC port over one limiter: the calls of `weir.v1` and Envoy's, health checks and reflection.
pub struct Calls<S> {
    port: Arc<Port<S>>,
    /// Limits the health watches of this connection.
    watches: ConcurrencyLimit,
    incomplete_calls: Arc<ConnectionCalls>,
    connected: Connected,
}

/// What the connections of the port share.
struct Port<S> {
    service: CheckService<S>,
    rls: Rls<S>,
    admin: Arc<AdminService>,
    /// The quotas, if limits are divided among Envoys.
    quotas: Option<Arc<Quotas<S>>>,
    health: Health,
    reflection: Reflection,
    streams: ConcurrencyLimit,
    metrics: ListenerMetrics,
    max_message_bytes: usize,
}

/// The unary calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unary {
    Check,
    CheckBatch,
    CheckAll,
    Reserve,
    Settle(Settling),
    Reset,
    Suggest,
    ShouldRateLimit,
    Health,
    Admin(AdminCall),
}

impl Unary {
    /// Whether it needs the name of its client.
    #[inline]
    fn needs_client(self) -> bool {
        matches!(self, Self::Reserve | Self::Settle(_) | Self::Reset | Self::Admin(_))
    }
}

impl<S: Store> Calls<S> {
    /// Returns the services of the gRPC port, and the reporter of their health. Envoy's quotas are served if there are any.
    pub async fn new(
        service: CheckService<S>,
        drain: Drain,
        settings: &GrpcSettings,
        envoy: EnvoySettings,
        admin: Arc<AdminService>,
        quotas: Option<Arc<Quotas<S>>>,
        metrics: &ListenerMetrics,
    ) -> (Self, ServingReporter) {
        let max_message_bytes = settings.max_message_bytes;
        let reporter = ServingReporter::new(quotas.is_some());
        reporter.report(true).await;
        let connected = Connected::new(drain);
        let open = |count| ConcurrencyLimit::new(count, Overload::Open, metrics.too_many_open.clone());
        let port = Arc::new(Port {
            rls: Rls::new(service.clone(), envoy),
            admin,
            service,
            health: Health::new(&reporter),
            reflection: Reflection::new(max_message_bytes, open(MAX_REFLECTIONS), quotas.is_some()),
            quotas,
            streams: open(settings.max_open_streams),
            metrics: metrics.clone(),
            max_message_bytes,
        });
        let calls = Self {
            port,
            watches: open(MAX_WATCHES),
            incomplete_calls: IncompleteCalls::new(settings.message_timeout.duration(), max_message_bytes, metrics)
                .of(connected.clone()),
            connected,
        };
        (calls, reporter)
    }

    /// Serves a unary call. It is not started once its deadline has passed.
    async fn unary(&self, unary: Unary, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        let call = service_fn(|mut request: tonic::Request<Bytes>| {
            let client = if unary.needs_client() { request.extensions_mut().remove() } else { None };
            let message = request.into_inner();
            async move {
                deadline.map_or(Ok(()), Deadline::check)?;
                let answer = self.answer(unary, message, client).await?;
                let bytes = AnswerBytes(answer.capacity());
                let mut response = tonic::Response::new(answer);
                if bytes.0 > SMALL_ANSWER_BYTES {
                    response.extensions_mut().insert(bytes);
                }
                Ok(response)
            }
        });
        let request = request.map(|body| self.incomplete_calls.body(body, Expected::Message));
        let response = codec::unary(self.port.max_message_bytes).unary(call, request).await;
        if codec::is_too_large(&response) {
            self.port.metrics.too_large.increment(1);
            if TOO_LARGE.allows(Instant::now()) {
                warn!(
                    max_bytes = self.port.max_message_bytes,
                    "calls are rejected: messages exceed grpc.max_message_bytes"
                );
            }
        }
        response
    }

    /// Answers one message. The futures of all calls but a check are boxed, so that a check's future does not have
    /// their size.
    async fn answer(&self, unary: Unary, message: Bytes, client: Option<ClientName>) -> Result<BytesMut, Status> {
        let context = CallContext::new(client.as_ref(), Transport::Grpc);
        Ok(match unary {
            Unary::Check => call::check(&self.port.service, message).await?,
            Unary::CheckBatch => Box::pin(batch::check_batch(&self.port.service, message)).await?,
            Unary::CheckAll => Box::pin(batch::check_all(&self.port.service, message)).await?,
            Unary::Reserve => {
                let message = read_with_check(&message);
                Box::pin(reservation::reserve(&self.port.service, message, &context, |_, out| out)).await?
            }
            Unary::Settle(settling) => {
                Box::pin(reservation::settle(&self.port.service, settling, &message, &context)).await?
            }
            Unary::Reset => Box::pin(call::reset(&self.port.service, message, &self.actor(client))).await?,
            Unary::Suggest => call::suggest(&self.port.service, &message)?,
            Unary::ShouldRateLimit => Box::pin(self.should_rate_limit(message)).await?,
            Unary::Health => Box::pin(self.port.health.check(message)).await?,
            Unary::Admin(call) => Box::pin(self.port.admin.answer(call, &message, &self.actor(client))).await?,
        })
    }

    fn actor(&self, client: Option<ClientName>) -> Actor {
        Actor { surface: "grpc", peer: self.connected.peer, client: client.map(|ClientName(name)| name) }
    }

    async fn should_rate_limit(&self, message: Bytes) -> Result<BytesMut, Status> {
        let request = RateLimitRequest::read(&message).inspect_err(|_| self.port.rls.unreadable())?;
        Ok(call::encoded(&self.port.rls.answer(&request).await?))
    }
}

impl<S: Store> super::guard::Routes for Calls<S> {
    type Body = Body;

    fn on(&self, connected: &Connected) -> Self {
        Self {
            port: Arc::clone(&self.port),
            connected: connected.clone(),
            incomplete_calls: self.incomplete_calls.port().of(connected.clone()),
            watches: ConcurrencyLimit::new(MAX_WATCHES, Overload::Open, self.port.metrics.too_many_open.clone()),
        }
    }

    async fn serve(&self, request: Request<Incoming>) -> Response<Body> {
        // A page of another site cannot send this content type without a CORS preflight.
        let of_grpc = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
        if !request.headers().get(CONTENT_TYPE).is_some_and(of_grpc) {
            self.connected.answered_by_its_head(request);
            let mut response = Response::new(Body::default());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return response;
        }
        let deadline = Deadline::of(request.headers());
        let call = async {
            let unary = match request.uri().path() {
                path::CHECK => Unary::Check,
                path::SHOULD_RATE_LIMIT => Unary::ShouldRateLimit,
                path::CHECK_BATCH => Unary::CheckBatch,
                path::CHECK_ALL => Unary::CheckAll,
                path::RESERVE => Unary::Reserve,
                path::COMMIT => Unary::Settle(Settling::Commit),
                path::CANCEL => Unary::Settle(Settling::Cancel),
                path::EXTEND => Unary::Settle(Settling::Extend),
                path::RESET => Unary::Reset,
                path::SUGGEST => Unary::Suggest,
                path::HEALTH_CHECK => Unary::Health,
                path::HEALTH_WATCH => return Box::pin(self.watch(request, deadline)).await,
                path::CHECK_STREAM => return Box::pin(self.stream_checks(request, deadline)).await,
                path::LEASE => return Box::pin(self.stream_leases(request, deadline)).await,
                path::STREAM_QUOTAS => return Box::pin(self.stream_quotas(request, deadline)).await,
                path::REFLECTION | path::REFLECTION_V1ALPHA => {
                    return Box::pin(self.port.reflection.serve(request, deadline, &self.incomplete_calls)).await;
                }
                other => match AdminCall::of_path(other) {
                    Some(call) => Unary::Admin(call),
                    None => {
                        self.connected.answered_by_its_head(request);
                        return Status::unimplemented("unknown method").into_http();
                    }
                },
            };
            self.unary(unary, request, deadline).await
        };
        let call = pin!(call);
        match deadline {
            None => call.await,
            Some(deadline) => deadline.bound(call).await,
        }
    }

    async fn discard(&self, request: Request<Incoming>) {
        self.connected.answered_by_its_head(request);
    }

    fn access(path: &str) -> Access {
        routes::grpc_access(path)
    }

    fn surface<B>(request: &Request<B>) -> Surface {
        routes::grpc_surface(request.uri().path())
    }

    fn lasts(path: &str) -> bool {
        matches!(path, path::CHECK_STREAM | path::LEASE | path::STREAM_QUOTAS)
    }

    fn reject(rejected: Rejected) -> Response<Body> {
        Status::from(rejected).into_http()
    }
}
