//! `grpc.health.v1.Health`. The answers are those of tonic-health; the calls are served as Weir's own, so that an open watch
//! costs a fraction of the buffers that generated code makes for it, and each connection may have a few.

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
    arrival::ArrivingBody,
    call, codec,
    termination::{Side, TerminatedBody, Termination},
};

/// Largest message: the name of a service, and some room.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// Answers health checks.
pub(super) struct Health(HealthService);

impl Health {
    /// Serves the status that `reporter` holds.
    pub(super) fn new(reporter: &HealthReporter) -> Self {
        Self(HealthService::from_health_reporter(reporter.clone()))
    }

    /// `Check`.
    ///
    /// # Errors
    /// NOT_FOUND for a service that is not known, INVALID_ARGUMENT for no message.
    pub(super) async fn check(&self, message: Bytes) -> Result<BytesMut, Status> {
        Ok(call::encoded(self.0.check(read(message)?).await?.get_ref()))
    }

    /// `Watch`, until `termination`. It keeps its permit for as long.
    pub(super) async fn watch(
        &self,
        request: Request<ArrivingBody<Incoming>>,
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
    message.map(tonic::Request::new).map_err(|_| Status::invalid_argument("the message cannot be read"))
}
