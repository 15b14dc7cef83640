//! `grpc.reflection`: tonic's own, within bounds, for interactive use.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use hyper::{Request, Response, body::Incoming};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, body::Body, codec::CompressionEncoding, service::Routes};
use tonic_reflection::server::{Builder, Error};
use tower::Service;
use weir_server::ConcurrencyLimit;

use super::{
    deadline::Deadline,
    termination::{Side, TerminatedBody, Termination},
};
use crate::{
    proto,
    transport::{
        incomplete_calls::{ConnectionCalls, Expected},
        status::Rejected,
    },
};

/// Maximum number of reflection streams of the port. Each lasts at most `MAX_TIME`.
pub const MAX_REFLECTIONS: usize = 64;
const MAX_TIME: Duration = Duration::from_secs(60);
/// Grace period for a stream to end after that.
const GRACE: Duration = Duration::from_secs(1);

/// Describes the services of the port.
pub(super) struct Reflection {
    /// Created for the first stream: reading the descriptors is a quarter of the work of starting the service.
    routes: OnceLock<Routes>,
    max_message_bytes: usize,
    streams: ConcurrencyLimit,
    has_quotas: bool,
}

impl Reflection {
    /// Returns reflection with the message size and the compression of all calls, and at most `streams` streams. It
    /// describes Envoy's quotas only if they are served.
    pub(super) fn new(max_message_bytes: usize, streams: ConcurrencyLimit, has_quotas: bool) -> Self {
        Self { routes: OnceLock::new(), max_message_bytes, streams, has_quotas }
    }

    fn routes(&self) -> Result<Routes, Error> {
        if let Some(routes) = self.routes.get() {
            return Ok(routes.clone());
        }
        let descriptors = || {
            let always = Builder::configure()
                .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(weir_envoy::RATE_LIMIT_SERVICE)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
            match self.has_quotas {
                true => always.register_encoded_file_descriptor_set(weir_envoy::RATE_LIMIT_QUOTA_SERVICE),
                false => always,
            }
        };
        macro_rules! bounded {
            ($server:expr) => {
                $server.accept_compressed(CompressionEncoding::Gzip).max_decoding_message_size(self.max_message_bytes)
            };
        }
        let routes = Routes::new(bounded!(descriptors().build_v1()?))
            .add_service(bounded!(descriptors().build_v1alpha()?))
            .prepare();
        Ok(self.routes.get_or_init(|| routes).clone())
    }

    /// Serves one stream of this connection.
    pub(super) async fn serve(
        &self,
        request: Request<Incoming>,
        deadline: Option<Deadline>,
        calls: &Arc<ConnectionCalls>,
    ) -> Response<Body> {
        let connected = calls.connected();
        let permit = match self.streams.acquire() {
            Ok(permit) => permit,
            Err(overload) => {
                connected.answered_by_its_head(request);
                return Status::from(Rejected::from(overload)).into_http();
            }
        };
        let mut routes = match self.routes() {
            Ok(routes) => routes,
            Err(error) => return Status::internal(error.to_string()).into_http(),
        };
        let end = Deadline::after(MAX_TIME);
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        // The body is not polled for its end while the client's flow-control window is full.
        let left_unread = connected.left_unread();
        let overdue = AbortOnDropHandle::new(tokio::spawn(async move {
            end.passed().await;
            sleep(GRACE).await;
            left_unread.cancel();
        }));
        let termination = || Termination::new(connected.close.clone(), Some(end), None);
        let body = |body| TerminatedBody::new(calls.body(body, Expected::Stream), termination(), Side::Request);
        let request = request.map(body);
        let Ok::<_, Infallible>(response) = routes.call(request).await;
        response
            .map(|body| Body::new(TerminatedBody::new(body, termination(), Side::Answer).holding((permit, overdue))))
    }
}
