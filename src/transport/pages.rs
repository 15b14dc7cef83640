//! The HTTP port as a whole.

use axum::{Router, body::Body, response::IntoResponse};
use hyper::{Request, Response, body::Incoming};
use tower::Service as _;
use weir_telemetry::request::Surface;

use super::{
    guard::Routes,
    http::problem::Problem,
    observer::{given_id, return_id},
    routes,
    status::Rejected,
};
use crate::auth::Access;

/// The routes of the HTTP port.
#[derive(Clone)]
pub struct Pages(pub Router);

impl Routes for Pages {
    type Body = Body;

    async fn serve(&self, request: Request<Incoming>) -> Response<Body> {
        let id = given_id(request.headers());
        let Ok(mut response) = self.0.clone().call(request).await;
        if response.status().as_u16() >= 400 {
            return_id(id, response.headers_mut());
        }
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
