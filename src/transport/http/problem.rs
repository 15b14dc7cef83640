//! Problem details for HTTP APIs (RFC 9457).

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use crate::transport::status::Rejected;

/// The content type of a problem.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The type of a refusal by a limit.
pub const QUOTA_EXCEEDED: Kind =
    Kind { uri: "https://iana.org/assignments/http-problem-types#quota-exceeded", title: "Quota Exceeded" };
/// The type of a request that was shed.
const REDUCED_CAPACITY: Kind = Kind {
    uri: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    title: "Temporary Reduced Capacity",
};

/// The type of a problem: the members `type` and `title`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Kind {
    #[serde(rename = "type")]
    uri: &'static str,
    title: &'static str,
}

impl Kind {
    /// Returns a type that only repeats the status.
    fn of_status(status: StatusCode) -> Self {
        Self { uri: "about:blank", title: status.canonical_reason().unwrap_or_default() }
    }
}

/// Why a request was not decided.
#[derive(Debug, Serialize)]
pub struct Problem {
    #[serde(flatten)]
    kind: Kind,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    /// One sentence.
    detail: String,
    /// The same error as in the answer to a batch; `None` if the request was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Box<Error>>,
    #[serde(skip)]
    retry_after: Option<u64>,
}

/// The members of `weir.v1.Error`.
#[derive(Debug, Serialize)]
struct Error {
    code: i32,
    message: String,
    field: String,
}

fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

impl Problem {
    /// Returns a problem with a request whose body was not read.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { kind: Kind::of_status(status), status, detail: detail.into(), error: None, retry_after: None }
    }

    /// Whether the body is too large.
    pub fn is_too_large(&self) -> bool {
        self.status == StatusCode::PAYLOAD_TOO_LARGE
    }

    /// Whether the request was shed, so that it may be sent again.
    pub fn is_overload(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }
}

impl From<Rejected> for Problem {
    fn from(rejected: Rejected) -> Self {
        let (status, retry_after) = (rejected.http_status(), rejected.retry_after);
        let kind = if retry_after.is_some() { REDUCED_CAPACITY } else { Kind::of_status(status) };
        let Rejected { code, message, field, .. } = rejected;
        let detail = if field.is_empty() { message.clone() } else { format!("{field}: {message}") };
        let error = Some(Box::new(Error { code: code as i32, message, field }));
        // Whole seconds, rounded up.
        let retry_after = retry_after.map(|after| after.as_secs_f64().ceil().max(1.0) as u64);
        Self { kind, status, detail, error, retry_after }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body::from(serde_json::to_vec(&self).unwrap_or_default());
        let mut response = (self.status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tonic::Code;

    use super::*;

    async fn sent(code: Code, field: &str) -> (u16, Option<String>, Value) {
        let retry_after = (code == Code::ResourceExhausted).then_some(Duration::from_millis(1_001));
        let rejected = Rejected { code, message: "why".to_owned(), field: field.to_owned(), retry_after };
        let (head, body) = Problem::from(rejected).into_response().into_parts();
        assert_eq!(head.headers[header::CONTENT_TYPE], PROBLEM_JSON);
        let body = axum::body::to_bytes(body, 1_000).await.unwrap();
        let retry = head.headers.get(header::RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned());
        (head.status.as_u16(), retry, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn every_grpc_code_has_its_http_status() {
        for (code, status, title) in [
            (Code::InvalidArgument, 400, "Bad Request"),
            (Code::Unauthenticated, 401, "Unauthorized"),
            (Code::PermissionDenied, 403, "Forbidden"),
            (Code::NotFound, 404, "Not Found"),
            (Code::Internal, 500, "Internal Server Error"),
            (Code::Unavailable, 503, "Service Unavailable"),
        ] {
            let expected = json!({ "type": "about:blank", "title": title, "status": status, "detail": "a.b: why",
                "error": { "code": code as i32, "message": "why", "field": "a.b" } });
            assert_eq!(sent(code, "a.b").await, (status, None, expected));
        }
    }

    #[tokio::test]
    async fn shed_requests_have_their_own_problem_type_and_retry_after() {
        let (status, retry, body) = sent(Code::ResourceExhausted, "").await;
        assert_eq!((status, retry.as_deref()), (429, Some("2")));
        let expected = json!({ "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Temporary Reduced Capacity", "status": 429, "detail": "why",
            "error": { "code": 8, "message": "why", "field": "" } });
        assert_eq!(body, expected);
    }
}
