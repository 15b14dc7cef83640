//! `/json`: the same call as JSON over HTTP, as envoyproxy/ratelimit serves it. Any method; 200 where the request passes, 429
//! where it does not, 400 for a body that is no such request, 500 where there is no decision.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
    routing::any,
};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use tonic::Code;
use weir_store::Store;

use super::{
    DESCRIPTORS, Rls,
    pb::{RateLimitResponse, rate_limit_response},
    wire::RateLimitRequest,
};
use crate::{
    limiter::descriptors::MAX_DESCRIPTORS,
    transport::http::{Damaged, body, transcode::is_bounded},
};

/// Most values in the JSON of a request: many times what usual descriptors have.
const MAX_VALUES: usize = 64 * MAX_DESCRIPTORS;

/// What is said of a body that is no request, and where there is no decision.
const BAD_REQUEST: &str = "Bad Request\n";
const FAILED: &str = "Internal Server Error\n";

struct Json<S> {
    rls: Rls<S>,
    request: MessageDescriptor,
    response: MessageDescriptor,
    max_body_bytes: usize,
}

/// The path. A body is at most `max_body_bytes` long.
///
/// # Errors
/// [`Damaged`] when the descriptors compiled into this binary cannot be read.
pub fn routes<S: Store>(rls: Rls<S>, max_body_bytes: usize) -> Result<Router, Damaged> {
    let pool = DescriptorPool::decode(DESCRIPTORS).map_err(|error| Damaged::new(error.to_string()))?;
    let message = |name: &str| {
        let found = pool.get_message_by_name(&format!("envoy.service.ratelimit.v3.{name}"));
        found.ok_or_else(|| Damaged::new(format!("no {name}")))
    };
    let (request, response) = (message("RateLimitRequest")?, message("RateLimitResponse")?);
    let json = Json { rls, request, response, max_body_bytes };
    Ok(Router::new().route("/json", any(answer::<S>)).with_state(Arc::new(json)))
}

async fn answer<S: Store>(State(json): State<Arc<Json<S>>>, request: Request) -> Response {
    let body = body::bytes(request.into_body(), json.max_body_bytes).await.ok();
    let Some(request) = body.and_then(|body| json.read(&body)) else {
        json.rls.unreadable();
        return plain(StatusCode::BAD_REQUEST, BAD_REQUEST);
    };
    let failed = || plain(StatusCode::INTERNAL_SERVER_ERROR, FAILED);
    match json.rls.answer(&request).await {
        Ok(answer) => json.write(&answer).unwrap_or_else(failed),
        Err(refused) if refused.code == Code::InvalidArgument => plain(StatusCode::BAD_REQUEST, BAD_REQUEST),
        Err(_) => failed(),
    }
}

impl<S> Json<S> {
    /// JSON becomes the message of the wire, so that all requests are read in one place.
    fn read(&self, body: &[u8]) -> Option<RateLimitRequest> {
        if !is_bounded(body, MAX_VALUES) {
            return None;
        }
        let mut reader = serde_json::Deserializer::from_slice(body);
        let message = DynamicMessage::deserialize(self.request.clone(), &mut reader).ok()?;
        reader.end().ok()?;
        RateLimitRequest::read(&message.encode_to_vec()).ok()
    }

    fn write(&self, answer: &RateLimitResponse) -> Option<Response> {
        let mut message = DynamicMessage::new(self.response.clone());
        message.transcode_from(answer).ok()?;
        let mut response = Response::new(Body::from(serde_json::to_vec(&message).ok()?));
        *response.status_mut() = match answer.overall_code() {
            rate_limit_response::Code::Ok => StatusCode::OK,
            rate_limit_response::Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
            rate_limit_response::Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
        };
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Some(response)
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
