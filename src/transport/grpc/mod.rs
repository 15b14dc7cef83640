//! The gRPC port. The calls that decide are read from and written to the bytes of their messages (`frames`, `call`,
//! `answer`, `stream`, `body`); health and reflection are tonic's.

mod answer;
pub mod body;
pub mod call;
pub mod frames;
mod stream;

use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use hyper::{HeaderMap, Request, Response, body::Incoming};
use serde::{Deserialize, Serialize};
use tonic::{Status, service::Routes};
use tonic_health::server::HealthReporter;
use tower::Service;

use super::{
    access,
    drain::Drain,
    ending::Ending,
    farewell::Connected,
    observe::Checks,
    rls::{self, EnvoySettings, Rls, wire::RateLimitRequest},
    server::Serve,
    status::Refused,
    watch::{self, given_id, tell_id},
    workers::RuntimeKind,
};
use crate::{
    auth::Access,
    proto,
    settings::{Listen, Time, Traffic},
    store::Store,
    telemetry::trail::Surface,
    tls::ListenerTls,
};
use body::CallBody;
use frames::Messages;

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
    /// How they share connections.
    pub runtime: RuntimeKind,
    /// Most connections; further ones are closed at once.
    pub max_connections: usize,
    /// Most concurrent calls of one connection.
    pub max_streams: u32,
    /// How old a connection gets, a tenth more or less; 0: no bound.
    pub max_connection_age: Time,
    /// How long what is under way on it may take then.
    pub max_connection_age_grace: Time,
    /// How long a connection that has asked something may ask nothing more; 0: no bound.
    pub idle_timeout: Time,
    /// Most requests of one connection a second; 0: no bound.
    pub max_requests_per_second: u32,
    /// Most requests of all connections that are under way at once; 0: as many as the store is good for.
    pub max_concurrent_requests: usize,
    /// Largest message that is read.
    pub max_message_bytes: usize,
    /// How it is encrypted, and who may connect.
    pub tls: ListenerTls,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        let traffic = Traffic::default();
        Self {
            listen: Listen::loopback(8081),
            workers: 0,
            runtime: RuntimeKind::default(),
            max_connections: 10_000,
            max_streams: 1_024,
            max_connection_age: traffic.max_connection_age,
            max_connection_age_grace: traffic.max_connection_age_grace,
            idle_timeout: traffic.idle_timeout,
            max_requests_per_second: traffic.max_requests_per_second,
            max_concurrent_requests: traffic.max_concurrent_requests,
            max_message_bytes: 1 << 20,
            tls: ListenerTls::default(),
        }
    }
}

impl GrpcSettings {
    /// The bounds on connections in time and on requests in number.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            max_connection_age: self.max_connection_age,
            max_connection_age_grace: self.max_connection_age_grace,
            idle_timeout: self.idle_timeout,
            max_requests_per_second: self.max_requests_per_second,
            max_concurrent_requests: self.max_concurrent_requests,
        }
    }
}

/// The paths of the calls that are answered here; all others are tonic's.
pub mod path {
    /// One check.
    pub const CHECK: &str = "/weir.v1.RateLimiter/Check";
    /// Many checks in one call.
    pub const CHECK_BATCH: &str = "/weir.v1.RateLimiter/CheckBatch";
    /// Checks as they come.
    pub const CHECK_STREAM: &str = "/weir.v1.RateLimiter/CheckStream";
    /// Forget a key.
    pub const RESET: &str = "/weir.v1.RateLimiter/Reset";
    /// What Envoy asks.
    pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
}

/// The gRPC port over one limiter: the calls of `weir.v1.RateLimiter` and Envoy's, with health and reflection beside them.
pub struct Calls<S> {
    checks: Checks<S>,
    rls: Rls<S>,
    others: Router,
    connected: Connected,
    max_message_bytes: usize,
}

impl<S> Clone for Calls<S> {
    fn clone(&self) -> Self {
        Self {
            checks: self.checks.clone(),
            rls: self.rls.clone(),
            others: self.others.clone(),
            connected: self.connected.clone(),
            max_message_bytes: self.max_message_bytes,
        }
    }
}

impl<S: Store> Calls<S> {
    /// All that is served on the gRPC port, and what reports its health.
    ///
    /// # Errors
    /// When the descriptors compiled into this binary cannot be read.
    pub async fn new(
        checks: Checks<S>,
        drain: Drain,
        max_message_bytes: usize,
        envoy: EnvoySettings,
    ) -> Result<(Self, HealthReporter), tonic_reflection::server::Error> {
        let (reporter, health) = tonic_health::server::health_reporter();
        report_serving(&reporter, true).await;
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(rls::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let others = Routes::new(Ending::new(health))
            .add_service(Ending::new(reflection().build_v1()?))
            .add_service(Ending::new(reflection().build_v1alpha()?));
        let others = others.prepare().into_axum_router();
        let rls = Rls::new(checks.clone(), envoy);
        let connected = Connected::new(drain, None);
        Ok((Self { checks, rls, others, connected, max_message_bytes }, reporter))
    }

    async fn message(&self, body: Incoming) -> Result<Bytes, Status> {
        Messages::new(body, self.max_message_bytes).only().await
    }

    async fn check(&self, body: Incoming) -> Result<Bytes, Status> {
        Ok(call::check(&self.checks, self.message(body).await?).await?)
    }

    async fn should_rate_limit(&self, body: Incoming) -> Result<Bytes, Status> {
        let request = RateLimitRequest::read(&self.message(body).await?).inspect_err(|_| self.rls.unreadable())?;
        Ok(call::encoded(&self.rls.answer(&request).await?))
    }

    async fn check_batch(&self, body: Incoming) -> Result<Bytes, Status> {
        Ok(call::check_batch(&self.checks, self.message(body).await?).await?)
    }

    async fn reset(&self, body: Incoming) -> Result<Bytes, Status> {
        Ok(call::reset(&self.checks, self.message(body).await?).await?)
    }

    fn check_stream(&self, mut request: Request<Incoming>) -> Response<CallBody> {
        let id = given_id(request.headers());
        let ending = stream::Ending::new(&self.connected, request.extensions_mut().remove());
        let checks = self.checks.clone();
        let messages = Messages::new(request.into_body(), self.max_message_bytes);
        if checks.answers_at_once() {
            body::many(id, stream::at_once(checks, messages, ending))
        } else {
            body::many(id, stream::by_waiting(checks, messages, ending))
        }
    }

    async fn other(&self, mut request: Request<Incoming>) -> Response<CallBody> {
        request.extensions_mut().insert(self.connected.farewell.clone());
        let Ok(response) = self.others.clone().call(request).await;
        response.map(CallBody::Other)
    }
}

impl<S: Store> Serve for Calls<S> {
    type Body = CallBody;

    fn on(self, connected: Connected) -> Self {
        Self { connected, ..self }
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<CallBody> {
        match request.uri().path() {
            path::CHECK => {
                let (headers, body) = opened(request);
                answer(self.check(body).await, &headers)
            }
            // Boxed, so that a check does not carry the room for them around.
            path::SHOULD_RATE_LIMIT => {
                let (headers, body) = opened(request);
                answer(Box::pin(self.should_rate_limit(body)).await, &headers)
            }
            path::CHECK_BATCH => {
                let (headers, body) = opened(request);
                answer(Box::pin(self.check_batch(body)).await, &headers)
            }
            path::CHECK_STREAM => self.check_stream(request),
            path::RESET => {
                let (headers, body) = opened(request);
                answer(Box::pin(self.reset(body)).await, &headers)
            }
            _ => Box::pin(self.other(request)).await,
        }
    }

    fn access(path: &str) -> Access {
        access::of_call(path)
    }

    fn surface<B>(request: &Request<B>) -> Surface {
        watch::call(request.uri().path())
    }

    fn lasts(path: &str) -> bool {
        path == path::CHECK_STREAM
    }

    fn refuse(refused: Refused) -> Response<CallBody> {
        body::unary(Err(refused.into()))
    }
}

/// What a request brings; of its headers nothing is looked up before the call has failed.
#[inline]
fn opened(mut request: Request<Incoming>) -> (HeaderMap, Incoming) {
    (std::mem::take(request.headers_mut()), request.into_body())
}

/// The answer to a unary call; one that failed bears the id that its caller gave it.
#[inline]
fn answer(answer: Result<Bytes, Status>, asked: &HeaderMap) -> Response<CallBody> {
    let has_failed = answer.is_err();
    let mut response = body::unary(answer);
    if has_failed {
        tell_id(given_id(asked), response.headers_mut());
    }
    response
}

/// Tells those who ask for health whether this service is to be called.
pub async fn report_serving(reporter: &HealthReporter, serving: bool) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    for service in ["", SERVICE, rls::SERVICE, rls::HEALTH_NAME] {
        reporter.set_service_status(service, if serving { Serving } else { NotServing }).await;
    }
}
