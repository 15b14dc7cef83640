//! The calls of `weir.v1.Admin` as JSON over HTTP: `POST /v1/admin/…`.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
    routing::{any, post},
};

use super::{JSON, Sites, actor, body, not_posted, problem::Problem, response};
use crate::transport::{
    admin::{AdminCall, AdminService},
    json::Schema,
    status::Rejected,
};

struct Api {
    service: Arc<AdminService>,
    schema: Arc<Schema>,
    max_body_bytes: usize,
    sites: Sites,
}

/// Returns the routes of the operators' API. A body has at most `max_body_bytes`; in browsers only pages of `sites` may
/// call.
pub fn routes(service: Arc<AdminService>, schema: Arc<Schema>, max_body_bytes: usize, sites: Sites) -> Router {
    let api = Api { service, schema, max_body_bytes, sites };
    let routes = AdminCall::ALL.into_iter().fold(Router::new(), |routes, call| {
        let answer = move |State(api): State<Arc<Api>>, request| async move { api.answer(call, request).await };
        routes.route(call.http_path(), post(answer).fallback(not_posted))
    });
    routes.route("/v1/admin/{*path}", any(nowhere)).with_state(Arc::new(api))
}

async fn nowhere() -> Problem {
    let paths = AdminCall::ALL.map(AdminCall::http_path).join(", ");
    Problem::new(StatusCode::NOT_FOUND, format!("unknown path; known are {paths}"))
}

impl Api {
    async fn answer(&self, call: AdminCall, mut request: Request) -> Result<Response, Problem> {
        let ([wanted, answer], actor) = (call.messages(), actor(&mut request));
        let text = body::read(request, self.max_body_bytes, &self.sites).await?;
        let message = self.schema.read(wanted, text.as_bytes()).map_err(Rejected::from)?;
        let bytes = self.service.answer(call, &message, &actor).await?;
        Ok(response(StatusCode::OK, JSON, &self.schema.json(answer, &bytes, true)))
    }
}
