//! The HTTP port as a whole.

use std::net::SocketAddr;

use axum::{Router, body::Body, response::IntoResponse};
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
};
use tower::Service as _;
use weir_server::{AnswerBytes, Connected, metrics::ListenerMeter};
use weir_telemetry::request::Surface;

use super::{
    guard::Routes,
    http::{bodies::Bodies, problem::Problem},
    observer::{given_id, return_id},
    routes,
    status::Rejected,
};
use crate::auth::Access;

/// The routes of the HTTP port.
#[derive(Clone)]
pub struct Pages {
    router: Router,
    bodies: Bodies,
    peer: Option<SocketAddr>,
}

/// The client's address, among a request's extensions; `None` for a unix socket.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub Option<SocketAddr>);

impl Pages {
    /// The port with these routes, whose bodies are bounded together.
    pub fn new(router: Router, max_body_bytes: usize, meter: &ListenerMeter) -> Self {
        Self { router, bodies: Bodies::new(max_body_bytes, meter), peer: None }
    }
}

impl Routes for Pages {
    type Body = Body;

    fn on(self, connected: &Connected) -> Self {
        Self { peer: connected.peer, bodies: self.bodies.of(connected), ..self }
    }

    async fn serve(&self, mut request: Request<Incoming>) -> Response<Body> {
        if matches!(Self::access(request.uri().path()), Access::Named(_) | Access::Known) {
            request.extensions_mut().insert(Peer(self.peer));
        }
        let id = given_id(request.headers());
        let request = request.map(|body| Body::new(self.bodies.bound(body)));
        let Ok(mut response) = self.router.clone().call(request).await;
        if response.status().as_u16() >= 400 {
            return_id(id, response.headers_mut());
        }
        let bytes = AnswerBytes(response.body().size_hint().lower() as usize);
        response.extensions_mut().get_or_insert_with(|| bytes);
        response
    }

    fn access(path: &str) -> Access {
        routes::access_of_page(path)
    }

    fn surface<B>(request: &Request<B>) -> Surface {
        routes::surface_of_page(request.method(), request.uri().path())
    }

    fn reject(rejected: Rejected) -> Response<Body> {
        Problem::from(rejected).into_response()
    }
}
