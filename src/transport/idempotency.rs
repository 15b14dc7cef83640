//! Idempotent requests: the client gives them a `request_id`, and may repeat them.

use prost::Message;
use serde::{Deserialize, Serialize};
use weir_core::{domain::Micros, hold::RequestId};
use weir_settings::Time;

use super::{digest::sha256, message::CheckMessage};
use crate::{limiter::Invalid, proto::CheckRequest};

/// Maximum length of a `request_id`.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// Settings for requests with a `request_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdempotencySettings {
    /// Time for which an answer is remembered.
    pub window: Time,
}

impl Default for IdempotencySettings {
    fn default() -> Self {
        Self { window: Time::seconds(60) }
    }
}

/// Returns the id under which the answer to this message is remembered for `window`.
///
/// # Errors
/// [`Invalid`] for an id that is too long, and for a dry run with an id.
#[cold]
pub fn request_id(message: &CheckMessage<'_>, window: Micros) -> Result<RequestId, Invalid> {
    let wrong = |reason: String| Err(Invalid::field_error("request_id", reason));
    if message.request_id.len() > MAX_REQUEST_ID_BYTES {
        return wrong(format!(
            "a request_id must be 1 to {MAX_REQUEST_ID_BYTES} bytes, not {}",
            message.request_id.len()
        ));
    }
    if message.dry_run {
        return wrong("a dry run charges nothing, so it has no request_id".to_owned());
    }
    let mut request = message.to_check_request();
    request.max_wait = message.max_wait;
    let fingerprint = sha256([request.encode_to_vec()]);
    // The same `request_id` on another key is another id.
    let key = CheckRequest { domain: request.domain, key: request.key, ..CheckRequest::default() };
    let key: [u8; 8] = sha256([key.encode_to_vec()]);
    Ok(RequestId { name: [message.request_id.as_bytes(), &key].concat().into(), fingerprint, window })
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;
    use crate::proto::{Limit, LimitSpec};

    /// A client repeats a request on any replica, also of another version.
    #[test]
    fn ids_and_fingerprints_stay_the_same_across_versions() {
        let spec = LimitSpec { limits: vec![Limit { name: "own".to_owned(), ..Limit::default() }], charge: 2 };
        let least = CheckRequest { key: vec!["a".to_owned()], request_id: "r".to_owned(), ..CheckRequest::default() };
        let most = CheckRequest {
            domain: "shop".to_owned(),
            limit_spec: Some(spec),
            cost: Some(2),
            max_wait: Some(prost_types::Duration { seconds: 1, nanos: 5 }),
            factor: Some(0.5),
            summary_only: true,
            ..least.clone()
        };
        for (check, name, fingerprint) in
            [(least, "72386b1a694c7f1092", "9eff4d38eb0ebdba"), (most, "72e3a316ff531f7536", "ad275a4317917610")]
        {
            let id = request_id(&(&check).into(), 1).unwrap();
            assert_eq!((&*HEXLOWER.encode(&id.name), &*HEXLOWER.encode(&id.fingerprint)), (name, fingerprint));
        }
    }
}
