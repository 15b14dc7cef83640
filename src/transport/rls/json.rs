//! `/json`: the same call as JSON over HTTP, as envoyproxy/ratelimit serves it. Any method; 200 where the request passes, 429
//! where it does not, 400 for whatever is wrong.

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

use super::{
    DESCRIPTORS, Rls,
    pb::{RateLimitResponse, rate_limit_response::Code},
    wire::RateLimitRequest,
};
use crate::{
    store::Store,
    transport::http::{Damaged, body},
};

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
    let Ok(body) = body::bytes(request.into_body(), json.max_body_bytes).await else { return bad_request() };
    let Some(request) = json.read(&body) else { return bad_request() };
    match json.rls.answer(&request.0).await {
        Ok(answer) => json.write(&answer).unwrap_or_else(|| plain(StatusCode::INTERNAL_SERVER_ERROR, "")),
        Err(_) => bad_request(),
    }
}

impl<S> Json<S> {
    /// JSON becomes the message of the wire, so that all requests are read in one place.
    fn read(&self, body: &[u8]) -> Option<RateLimitRequest> {
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
            Code::Ok => StatusCode::OK,
            Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
            Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
        };
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Some(response)
    }
}

fn bad_request() -> Response {
    plain(StatusCode::BAD_REQUEST, "Bad Request\n")
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
