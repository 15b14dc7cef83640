//! Requests with ids of their own, which may be repeated.

use prost::Message;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use weir_core::{domain::Micros, hold::RequestId};
use weir_settings::Time;

use super::message::CheckMessage;
use crate::{limiter::Invalid, proto::CheckRequest};

/// Longest id of a request.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// How requests with a `request_id` are known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdempotencySettings {
    /// How long the answer is remembered.
    pub window: Time,
}

impl Default for IdempotencySettings {
    fn default() -> Self {
        Self { window: Time::seconds(60) }
    }
}

/// Eight bytes that tell a request from others.
fn short_digest(request: &CheckRequest) -> [u8; 8] {
    let mut short = [0; 8];
    short.copy_from_slice(&digest(&SHA256, &request.encode_to_vec()).as_ref()[..8]);
    short
}

/// The id by which the request of this message is known again for so long.
///
/// # Errors
/// [`Invalid`] for one that is too long, and in a dry run.
#[cold]
pub fn request_id(message: &CheckMessage<'_>, window: Micros) -> Result<RequestId, Invalid> {
    let wrong = |reason: String| Err(Invalid::field_error("request_id", reason));
    if message.request_id.len() > MAX_REQUEST_ID_BYTES {
        return wrong(format!("a request_id is 1 to {MAX_REQUEST_ID_BYTES} bytes, not {}", message.request_id.len()));
    }
    if message.dry_run {
        return wrong("a dry run charges nothing, so it has no request_id".to_owned());
    }
    let mut request = message.to_check_request();
    (request.max_wait, request.cost) = (message.max_wait, Some(message.cost.unwrap_or(1)));
    let fingerprint = short_digest(&request);
    // Of the same id each key has its own.
    let key = short_digest(&CheckRequest { domain: request.domain, key: request.key, ..CheckRequest::default() });
    Ok(RequestId { name: [message.request_id.as_bytes(), &key].concat().into(), fingerprint, window })
}
