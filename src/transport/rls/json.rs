//! `/json`: `ShouldRateLimit` as JSON over HTTP, as envoyproxy/ratelimit serves it. Any method; 200 if the request is
//! allowed, 429 if it is refused, 400 for an invalid body, 500 if the service cannot decide.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use prost::Message;
use tonic::Code;
use weir_store::Store;

use super::{
    Rls,
    pb::{RateLimitResponse, rate_limit_response},
    wire::RateLimitRequest,
};
use crate::{
    limiter::descriptors::MAX_DESCRIPTORS,
    transport::{
        http::{
            Sites,
            body::{self, TooLarge},
            problem::Problem,
        },
        json::{Damaged, Schema},
    },
};

/// Maximum number of values in the JSON of a request: many times as many as usual descriptors have.
const MAX_VALUES: usize = 64 * MAX_DESCRIPTORS;

/// The answers to a body that is not a request, and to a request without a decision.
const BAD_REQUEST: (StatusCode, &str) = (StatusCode::BAD_REQUEST, "Bad Request\n");
const FAILED: (StatusCode, &str) = (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error\n");

const REQUEST: &str = ".envoy.service.ratelimit.v3.RateLimitRequest";
const RESPONSE: &str = ".envoy.service.ratelimit.v3.RateLimitResponse";

struct Json<S> {
    rls: Rls<S>,
    schema: Schema,
    max_body_bytes: usize,
    sites: Sites,
}

/// Returns the route. A body has at most `max_body_bytes`, and pages of other sites cannot send one.
///
/// # Errors
/// [`Damaged`] when the descriptors compiled into this binary cannot be read.
pub fn routes<S: Store>(rls: Rls<S>, max_body_bytes: usize, sites: Sites) -> Result<Router, Damaged> {
    let json = Json { rls, schema: Schema::new(weir_envoy::RATE_LIMIT_SERVICE, MAX_VALUES)?, max_body_bytes, sites };
    Ok(Router::new().route("/json", any(answer::<S>)).with_state(Arc::new(json)))
}

async fn answer<S: Store>(State(json): State<Arc<Json<S>>>, request: Request) -> Response {
    if let Err(problem) = json.sites.check(&request) {
        return problem.into_response();
    }
    let body = match body::bytes(request.into_body(), json.max_body_bytes).await {
        Err(problem) if problem.is_overload() => return problem.into_response(),
        body => body,
    };
    let is_too_large = body.as_ref().is_err_and(Problem::is_too_large);
    let Some(request) = body.ok().and_then(|body| json.read(&body)) else {
        json.rls.unreadable();
        let mut response = BAD_REQUEST.into_response();
        if is_too_large {
            response.extensions_mut().insert(TooLarge);
        }
        return response;
    };
    match json.rls.answer(&request).await {
        Ok(answer) => json.write(&answer).unwrap_or_else(|| FAILED.into_response()),
        Err(refused) if refused.code == Code::InvalidArgument => BAD_REQUEST.into_response(),
        Err(_) => FAILED.into_response(),
    }
}

impl<S> Json<S> {
    fn read(&self, body: &[u8]) -> Option<RateLimitRequest> {
        RateLimitRequest::read(&self.schema.read(REQUEST, body).ok()?).ok()
    }

    fn write(&self, answer: &RateLimitResponse) -> Option<Response> {
        let json = serde_json::to_vec(&self.schema.json(RESPONSE, &answer.encode_to_vec(), false));
        let status = match answer.overall_code() {
            rate_limit_response::Code::Ok => StatusCode::OK,
            rate_limit_response::Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
            rate_limit_response::Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Some((status, [(header::CONTENT_TYPE, "application/json")], Body::from(json.ok()?)).into_response())
    }
}
