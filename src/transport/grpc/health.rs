//! `grpc.health.v1.Health`. The answers come from tonic-health. The calls are served like Weir's own, so that an open
//! watch needs a fraction of the buffers of generated code, and each connection may have a few.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use hyper::{Request, Response, body::Incoming};
use prost::Message;
use tonic::{Status, body::Body};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_server::Health as _},
    server::{HealthReporter, HealthService},
};
use tower::service_fn;
use weir_server::Permit;

use super::{
    codec,
    termination::{Side, TerminatedBody, Termination},
};
use crate::transport::{calls::service, incomplete_calls::RequestBody, message::encoded};

/// Maximum message size: the name of a service, and some spare bytes.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// The name under which envoyproxy/ratelimit answers health checks.
const ENVOY_HEALTH: &str = "ratelimit";

/// Reports the serving status of the port's services.
#[derive(Clone)]
pub struct ServingReporter {
    statuses: HealthReporter,
    /// Whether Envoy's quotas are served. Otherwise that service is unknown, as its calls are.
    has_quotas: bool,
}

impl ServingReporter {
    pub(super) fn new(has_quotas: bool) -> Self {
        Self { statuses: HealthReporter::new(), has_quotas }
    }

    /// Sets the status of every service.
    pub async fn report(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        let always = ["", service::RATE_LIMITER, service::ADMIN, service::ENVOY, ENVOY_HEALTH];
        for service in always.into_iter().chain(self.has_quotas.then_some(service::ENVOY_QUOTA)) {
            self.statuses.set_service_status(service, status).await;
        }
    }
}

/// Serves health checks.
pub(super) struct Health(HealthService);

impl Health {
    /// Returns a service that reports the status that `reporter` holds.
    pub(super) fn new(reporter: &ServingReporter) -> Self {
        Self(HealthService::from_health_reporter(reporter.statuses.clone()))
    }

    /// Serves `Check`.
    ///
    /// # Errors
    /// NOT_FOUND for an unknown service, INVALID_ARGUMENT for bytes that are not a message.
    pub(super) async fn check(&self, message: Bytes) -> Result<BytesMut, Status> {
        Ok(encoded(self.0.check(read(message)?).await?.get_ref()))
    }

    /// Serves `Watch` until `termination`, and holds its permit until then.
    pub(super) async fn watch(
        &self,
        request: Request<RequestBody<Incoming>>,
        permit: Permit,
        termination: Termination,
    ) -> Response<Body> {
        let watch = service_fn(|request: tonic::Request<Bytes>| async {
            let statuses = self.0.watch(read(request.into_inner())?).await?.into_inner();
            Ok(tonic::Response::new(statuses.map(|status| Ok(encoded(&status?)))))
        });
        let response = codec::unary(MAX_MESSAGE_BYTES).server_streaming(watch, request).await;
        response.map(|body| Body::new(TerminatedBody::new(body, termination, Side::Answer).holding(permit)))
    }
}

fn read(message: Bytes) -> Result<tonic::Request<HealthCheckRequest>, Status> {
    let message = HealthCheckRequest::decode(message);
    message.map(tonic::Request::new).map_err(|_| Status::invalid_argument("the message is malformed"))
}
