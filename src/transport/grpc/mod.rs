//! The gRPC port, served by tonic. The calls (`codec`, `stream`, [`api`](super::api)) and health checks
//! (`health`) pass through its server as encoded messages; reflection is tonic's own (`reflection`). Calls whose message
//! has not arrived are bounded ([`incomplete_calls`](super::incomplete_calls)), and so are unread answers (`streaming`).

pub mod codec;
mod deadline;
mod health;
mod lease;
mod messages;
mod quota_messages;
mod quota_stream;
mod reflection;
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
    HeaderMap, Request, Response, StatusCode,
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
use weir_telemetry::LogLimit;

use super::{
    api::Services,
    audit::Actor,
    authentication::ClientName,
    calls::Call,
    incomplete_calls::{ConnectionCalls, Expected, IncompleteCalls},
    message::encoded,
    rlqs::Quotas,
    rls::{EnvoySettings, Rls, wire::RateLimitRequest},
    routes::{self, Target, path},
    status::Rejected,
};
use crate::telemetry::{CallKind, RlqsRejections};
use deadline::Deadline;
use health::Health;
pub use health::ServingReporter;
pub use messages::{LARGE_MESSAGE_BYTES, READ_AHEAD_BYTES};
pub use quota_messages::MAX_REPORT_BYTES;
pub use reflection::MAX_REFLECTIONS;
use reflection::Reflection;

pub use settings::GrpcSettings;

/// Maximum number of health watches of a connection: a client has one for each service that it calls.
pub const MAX_WATCHES: usize = 4;

/// Limits the log lines about messages that are too large to one a minute.
static TOO_LARGE: LazyLock<LogLimit> = LazyLock::new(|| LogLimit::every(Duration::from_secs(60)));

/// The gRPC port over one limiter: the calls of `weir.v1` and Envoy's, health checks and reflection.
pub struct GrpcPort<S> {
    shared: Arc<Shared<S>>,
    /// Limits the health watches of this connection.
    watches: ConcurrencyLimit,
    incomplete_calls: Arc<ConnectionCalls>,
    connected: Connected,
}

/// The state that the connections of the port share.
struct Shared<S> {
    services: Services<S>,
    rls: Rls<S>,
    /// The quotas, if limits are divided among Envoys.
    quotas: Option<Arc<Quotas<S>>>,
    quota_rejections: Arc<RlqsRejections>,
    health: Health,
    reflection: Reflection,
    streams: ConcurrencyLimit,
    metrics: ListenerMetrics,
    max_message_bytes: usize,
}

impl<S> Shared<S> {
    /// Counts an answer to a message beyond the bound, by its headers or trailers.
    fn count_too_large(&self, headers: &HeaderMap) {
        if codec::is_too_large(headers) {
            self.metrics.too_large.increment(1);
            if TOO_LARGE.allows(Instant::now()) {
                warn!(max_bytes = self.max_message_bytes, "calls are rejected: messages exceed grpc.max_message_bytes");
            }
        }
    }
}

impl<S: Store> GrpcPort<S> {
    /// Returns the services of the gRPC port, and the reporter of their health. Envoy's quotas are served if there are any.
    pub async fn new(
        services: Services<S>,
        drain: Drain,
        settings: &GrpcSettings,
        envoy: EnvoySettings,
        quotas: Option<Arc<Quotas<S>>>,
        metrics: &ListenerMetrics,
    ) -> (Self, ServingReporter) {
        let max_message_bytes = settings.max_message_bytes;
        let reporter = ServingReporter::new(quotas.is_some());
        reporter.report(true).await;
        let connected = Connected::new(drain);
        let open = |count| ConcurrencyLimit::new(count, Overload::Open, metrics.too_many_open.clone());
        let quota_rejections = quotas.as_ref().map(|quotas| Arc::clone(quotas.rejections())).unwrap_or_else(|| {
            let metrics = services.checks.limiter().metrics();
            Arc::new(RlqsRejections::new(metrics.registry()))
        });
        let shared = Arc::new(Shared {
            rls: Rls::new(services.checks.clone(), envoy),
            services,
            health: Health::new(&reporter),
            reflection: Reflection::new(max_message_bytes, open(MAX_REFLECTIONS), quotas.is_some()),
            quotas,
            quota_rejections,
            streams: open(settings.max_open_streams),
            metrics: metrics.clone(),
            max_message_bytes,
        });
        let port = Self {
            shared,
            watches: open(MAX_WATCHES),
            incomplete_calls: IncompleteCalls::new(settings.message_timeout.duration(), max_message_bytes, metrics)
                .of(connected.clone()),
            connected,
        };
        (port, reporter)
    }

    /// Serves a unary call, whose `answer` is made from its message and its client. It is not started once its deadline
    /// has passed.
    async fn unary<A>(
        &self,
        request: Request<Incoming>,
        deadline: Option<Deadline>,
        answer: impl Fn(Bytes, Option<ClientName>) -> A + Sync,
    ) -> Response<Body>
    where
        A: Future<Output = Result<BytesMut, Status>> + Send,
    {
        let call = service_fn(|mut request: tonic::Request<Bytes>| {
            let client = request.extensions_mut().remove();
            let answer = answer(request.into_inner(), client);
            async move {
                deadline.map_or(Ok(()), Deadline::check)?;
                let answer = answer.await?;
                let bytes = AnswerBytes(answer.capacity());
                let mut response = tonic::Response::new(answer);
                if bytes.0 > SMALL_ANSWER_BYTES {
                    response.extensions_mut().insert(bytes);
                }
                Ok(response)
            }
        });
        let request = self.incomplete_calls.waiting(request, Expected::Message);
        let response = codec::unary(self.shared.max_message_bytes).unary(call, request).await;
        self.shared.count_too_large(response.headers());
        response
    }

    async fn answer(&self, call: Call, message: Bytes, client: Option<ClientName>) -> Result<BytesMut, Status> {
        match call {
            Call::ShouldRateLimit => Box::pin(self.should_rate_limit(message)).await,
            call => Ok(self.shared.services.answer(call, message, &self.actor(client)).await?),
        }
    }

    fn actor(&self, client: Option<ClientName>) -> Actor {
        Actor {
            surface: "grpc",
            transport: CallKind::Grpc,
            peer: self.connected.peer,
            client: client.map(|ClientName(name)| name),
        }
    }

    /// Serves a request that is not in the table of calls: a health check, reflection, or an unknown method.
    async fn serve_other(&self, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        match request.uri().path() {
            path::HEALTH_CHECK => self.unary(request, deadline, |message, _| self.shared.health.check(message)).await,
            path::HEALTH_WATCH => self.watch(request, deadline).await,
            path::REFLECTION | path::REFLECTION_V1ALPHA => {
                self.shared.reflection.serve(request, deadline, &self.incomplete_calls).await
            }
            _ => {
                self.connected.answered_by_its_head(request);
                Status::unimplemented("unknown method").into_http()
            }
        }
    }

    async fn should_rate_limit(&self, message: Bytes) -> Result<BytesMut, Status> {
        let request = RateLimitRequest::read(&message).inspect_err(|_| self.shared.rls.unreadable())?;
        Ok(encoded(&self.shared.rls.answer(&request).await?))
    }
}

impl<S: Store> super::guard::Routes for GrpcPort<S> {
    type Body = Body;

    fn on(&self, connected: &Connected) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            connected: connected.clone(),
            incomplete_calls: self.incomplete_calls.port().of(connected.clone()),
            watches: ConcurrencyLimit::new(MAX_WATCHES, Overload::Open, self.shared.metrics.too_many_open.clone()),
        }
    }

    async fn serve(&self, request: Request<Incoming>, call: Option<Call>) -> Response<Body> {
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
            match call {
                Some(Call::CheckStream) => Box::pin(self.stream_checks(request, deadline)).await,
                Some(Call::Lease) => Box::pin(self.stream_leases(request, deadline)).await,
                Some(Call::StreamRateLimitQuotas) => Box::pin(self.stream_quotas(request, deadline)).await,
                Some(call) => self.unary(request, deadline, |message, client| self.answer(call, message, client)).await,
                None => Box::pin(self.serve_other(request, deadline)).await,
            }
        };
        let call = pin!(call);
        match deadline {
            None => call.await,
            Some(deadline) => deadline.bound(call).await,
        }
    }

    async fn discard(&self, request: Request<Incoming>, rejected: Rejected) -> Response<Body> {
        self.connected.answered_by_its_head(request);
        Self::reject(rejected)
    }

    fn target(request: &Request<Incoming>) -> Target {
        routes::grpc(request.uri().path())
    }

    fn reject(rejected: Rejected) -> Response<Body> {
        Status::from(rejected).into_http()
    }
}
