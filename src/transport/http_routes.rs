//! The HTTP port.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, body::Body, response::IntoResponse};
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
};
use tower::Service as _;
use weir_server::{AnswerBytes, Connected, metrics::ListenerMetrics};
use weir_telemetry::request::Surface;

use super::{
    guard::Routes,
    http::{body, problem::Problem},
    incomplete_calls::{ConnectionCalls, Expected, IncompleteCalls},
    observer::{given_id, return_id},
    routes,
    status::Rejected,
};
use crate::auth::Access;

/// The routes of the HTTP port.
#[derive(Clone)]
pub struct HttpRoutes {
    router: Router,
    incomplete_calls: Arc<ConnectionCalls>,
}

/// The client's address, as a request extension; `None` for a unix socket.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub Option<SocketAddr>);

impl HttpRoutes {
    /// Returns the port with these routes, whose requests have bodies of at most `max_body_bytes`.
    pub fn new(router: Router, max_body_bytes: usize, metrics: &ListenerMetrics, connected: Connected) -> Self {
        let port = IncompleteCalls::new(body::TIMEOUT, max_body_bytes, metrics);
        Self { router, incomplete_calls: port.of(connected) }
    }
}

impl Routes for HttpRoutes {
    type Body = Body;

    fn on(self, connected: &Connected) -> Self {
        Self { incomplete_calls: self.incomplete_calls.port().of(connected.clone()), ..self }
    }

    async fn serve(&self, mut request: Request<Incoming>) -> Response<Body> {
        if matches!(Self::access(request.uri().path()), Access::Named(_)) {
            request.extensions_mut().insert(Peer(self.incomplete_calls.connected().peer));
        }
        let id = given_id(request.headers());
        let request = request.map(|body| Body::new(self.incomplete_calls.body(body, Expected::Message)));
        let Ok(mut response) = self.router.clone().call(request).await;
        if response.status().as_u16() >= 400 {
            return_id(id, response.headers_mut());
        }
        let bytes = AnswerBytes(response.body().size_hint().lower() as usize);
        response.extensions_mut().get_or_insert_with(|| bytes);
        response
    }

    fn access(path: &str) -> Access {
        routes::http_access(path)
    }

    fn is_paced(path: &str) -> bool {
        !routes::is_probe(path)
    }

    fn surface<B>(request: &Request<B>) -> Surface {
        routes::http_surface(request.method(), request.uri().path())
    }

    fn reject(rejected: Rejected) -> Response<Body> {
        Problem::from(rejected).into_response()
    }
}
