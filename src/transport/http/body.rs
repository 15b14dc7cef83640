//! Reads the body of a request, with bounds on its type, size and time.

use std::time::Duration;

use axum::{
    BoxError,
    body::{Body, BodyDataStream, Bytes, HttpBody},
    extract::Request,
    http::{HeaderMap, StatusCode, header},
};
use futures_util::StreamExt;
use tokio::time::timeout;
use tonic::{Code, Status};
use weir_server::Overload;

use super::{problem::Problem, site::Sites};
use crate::transport::status::Rejected;

/// Time limit for receiving a body; the default of `grpc.message_timeout` too.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Bounds on draining an unread body before its request is answered: bytes, time, and pause between parts.
const MAX_DRAINED_BYTES: usize = 4 << 20;
const MAX_DRAIN_TIME: Duration = Duration::from_secs(5);
const MAX_DRAIN_PAUSE: Duration = Duration::from_secs(1);

/// Marks an answer to a body that is too large where its status is not 413, as a response extension.
#[derive(Clone, Copy, Debug)]
pub struct TooLarge;

/// Reads the body of a request, which must be JSON, as a text of at most `most` bytes.
///
/// # Errors
/// [`Problem`]: 403 for a request of a page that is not of `sites`, 415 for another type, 413 for a longer body, 408
/// for one that takes too long, 429 if too many are unfinished, 400 for one that is not UTF-8 or breaks off.
pub async fn read(request: Request, most: usize, sites: &Sites) -> Result<String, Problem> {
    sites.check(&request)?;
    check_kind(request.headers())?;
    String::from_utf8(bytes(request.into_body(), most).await?)
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))
}

/// Reads a body of any type, of at most `most` bytes.
///
/// # Errors
/// [`Problem`]: 413 for a longer body, 408 for one that takes too long, 429 if too many are unfinished, 400 for one
/// that breaks off.
pub async fn bytes(body: Body, most: usize) -> Result<Vec<u8>, Problem> {
    let too_long = || Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a body must be at most {most} bytes"));
    let is_announced_as_longer = body.size_hint().lower() > most as u64;
    let bytes = if is_announced_as_longer { None } else { collect(body.into_data_stream(), most).await? };
    bytes.ok_or_else(too_long)
}

/// Drains a body that was not read, until its end, a longer pause, or a bound. Returns whether it has ended. If not, a
/// client that still writes may get a reset, of the connection or in HTTP/2 of the stream, instead of the answer.
pub async fn drain(body: impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static) -> bool {
    let mut parts = Body::new(body).into_data_stream();
    let within_bounds = async {
        let mut bytes = 0;
        while bytes <= MAX_DRAINED_BYTES {
            match timeout(MAX_DRAIN_PAUSE, parts.next()).await {
                Ok(Some(Ok(part))) => bytes += part.len(),
                end => return matches!(end, Ok(None)),
            }
        }
        false
    };
    timeout(MAX_DRAIN_TIME, within_bounds).await.unwrap_or(false)
}

/// Collects a body; `None` if it is longer than `most`.
async fn collect(mut parts: BodyDataStream, most: usize) -> Result<Option<Vec<u8>>, Problem> {
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| match error.into_inner().downcast_ref().map(Status::code) {
            Some(Code::ResourceExhausted) => Rejected::from(Overload::Open).into(),
            Some(Code::DeadlineExceeded) => {
                let detail = format!("the body did not come within {} s", TIMEOUT.as_secs());
                Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
            }
            _ => Problem::new(StatusCode::BAD_REQUEST, "the body is incomplete"),
        })?;
        if bytes.len() + part.len() > most {
            return Ok(None);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(Some(bytes))
}

fn check_kind(headers: &HeaderMap) -> Result<(), Problem> {
    if let Some(kind) = headers.get(header::CONTENT_TYPE)
        && !kind.to_str().is_ok_and(is_json)
    {
        let detail = "Content-Type must be application/json, or absent";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Content-Encoding is not supported: send the body uncompressed",
        )),
        _ => Ok(()),
    }
}

/// Whether a content type is JSON, with any parameters.
fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.split_once('/') {
        Some(("application", name)) => name == "json" || name.ends_with("+json"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognized_by_its_content_type() {
        for kind in ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"] {
            assert!(is_json(kind), "{kind}");
        }
        for kind in ["", "json", "text/plain", "text/json", "application/x-www-form-urlencoded", "application/jsonp"] {
            assert!(!is_json(kind), "{kind}");
        }
    }
}
