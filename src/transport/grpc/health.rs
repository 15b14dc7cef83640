//! `grpc.health.v1.Health`. The answers come from tonic-health. The calls are served like Weir's own, so that an open
//! watch needs a fraction of the buffers of generated code, and each connection may have a few.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use hyper::{Request, Response, body::Incoming};
use prost::Message;
use tonic::{Status, body::Body};
use tonic_health::{
    pb::{HealthCheckRequest, health_server::Health as _},
    server::{HealthReporter, HealthService},
};
use tower::service_fn;
use weir_server::Permit;

use super::{
    call, codec,
    incomplete_calls::RequestBody,
    termination::{Side, TerminatedBody, Termination},
};

/// Maximum message size: the name of a service, and some room.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// Serves health checks.
pub(super) struct Health(HealthService);

impl Health {
    /// Returns a service that reports the status that `reporter` holds.
    pub(super) fn new(reporter: &HealthReporter) -> Self {
        Self(HealthService::from_health_reporter(reporter.clone()))
    }

    /// Serves `Check`.
    ///
    /// # Errors
    /// NOT_FOUND for an unknown service, INVALID_ARGUMENT for bytes that are not a message.
    pub(super) async fn check(&self, message: Bytes) -> Result<BytesMut, Status> {
        Ok(call::encoded(self.0.check(read(message)?).await?.get_ref()))
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
            Ok(tonic::Response::new(statuses.map(|status| Ok(call::encoded(&status?)))))
        });
        let response = codec::unary(MAX_MESSAGE_BYTES).server_streaming(watch, request).await;
        response.map(|body| Body::new(TerminatedBody::new(body, termination, Side::Answer).holding(permit)))
    }
}

fn read(message: Bytes) -> Result<tonic::Request<HealthCheckRequest>, Status> {
    let message = HealthCheckRequest::decode(message);
    message.map(tonic::Request::new).map_err(|_| Status::invalid_argument("the message is malformed"))
}
