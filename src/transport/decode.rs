//! Decodes messages into requests.

use weir_core::{
    algorithm::{Bounds, message::micros},
    domain::{
        Micros,
        request::{MAX_COST, RESERVATION_TTL},
    },
    hold::OnExpiry,
};

use super::{idempotency, limit_spec, message::CheckMessage};
use crate::{
    limiter::{CheckAll, CheckError, Invalid, Request},
    proto,
};

/// Maximum number of checks in a batch.
pub const MAX_BATCH: usize = 1_000;

/// The repeat window of checks that are decided together, which have no id.
const NO_REPEAT: Micros = 0;

/// A check as its surface decoded it, or the error.
pub type Message<'m> = Result<CheckMessage<'m>, Invalid>;

/// Returns the error for a batch with more than [`MAX_BATCH`] checks.
pub fn too_many_checks() -> Invalid {
    Invalid::field_error("checks", format!("at most {MAX_BATCH} checks in a batch"))
}

/// Returns the request of a check. Its limits must stay within `bounds`; its id is remembered for `repeat_window`.
///
/// # Errors
/// [`Invalid`] names the field at fault.
#[inline]
pub fn check<'a>(message: &CheckMessage<'a>, bounds: &Bounds, repeat_window: Micros) -> Result<Request<'a>, Invalid> {
    let max_wait = match &message.max_wait {
        None => None,
        Some(wait) => {
            let wait = micros(wait);
            Some(wait.ok_or_else(|| {
                Invalid::field_error("max_wait", "max_wait must be 0 to 1 day, in whole microseconds")
            })?)
        }
    };
    let mut request = Request::new(message.domain, &message.key)?;
    request.set_terms(message.cost.unwrap_or(1), max_wait, message.factor.unwrap_or(1.0))?;
    request.dry_run = message.dry_run;
    if let Some(spec) = &message.limit_spec {
        request.spec = Some(limit_spec::read(spec, &request.key, bounds)?);
    }
    if !message.request_id.is_empty() {
        request.id = Some(idempotency::request_id(message, repeat_window)?);
    }
    Ok(request)
}

/// Returns the TTL of a reservation.
///
/// # Errors
/// [`Invalid`] for a TTL out of bounds.
pub fn ttl(ttl: Option<&prost_types::Duration>) -> Result<Option<Micros>, Invalid> {
    let Some(ttl) = ttl else { return Ok(None) };
    let ttl = micros(ttl).filter(|ttl| RESERVATION_TTL.contains(ttl));
    let invalid = || Invalid::field_error("ttl", "a ttl must be 10 ms to 24 hours, in whole microseconds");
    ttl.map(Some).ok_or_else(invalid)
}

/// Returns the action on a reservation that expires before it is settled.
///
/// # Errors
/// [`Invalid`] for an unknown number.
pub fn on_expiry(number: i32) -> Result<OnExpiry, Invalid> {
    match proto::OnExpiry::try_from(number) {
        Ok(proto::OnExpiry::Unspecified | proto::OnExpiry::Keep) => Ok(OnExpiry::Keep),
        Ok(proto::OnExpiry::Release) => Ok(OnExpiry::Release),
        Err(_) => Err(Invalid::field_error("on_expiry", format!("unknown on_expiry {number}"))),
    }
}

/// Returns the actual cost of a reservation, in units, if the client specifies it.
///
/// # Errors
/// [`Invalid`] for a number out of bounds.
pub fn actual(actual: Option<i64>) -> Result<Option<u64>, Invalid> {
    match actual {
        None => Ok(None),
        Some(actual @ 0..=MAX_COST) => Ok(Some(actual.unsigned_abs())),
        Some(actual) => Err(Invalid::field_error("actual", format!("the actual cost must be 0 to 2^32, not {actual}"))),
    }
}

/// Returns the requests of checks that are decided together.
///
/// # Errors
/// [`CheckError`] names the check and the field at fault.
pub fn check_all<'a>(messages: Vec<Message<'a>>, bounds: &Bounds) -> Result<CheckAll<'a>, CheckError> {
    let check = |(index, message): (usize, Message<'a>)| {
        let request = message.and_then(|message| check(&message, bounds, NO_REPEAT));
        request.map_err(|invalid| CheckError::from(invalid).in_check(index))
    };
    CheckAll::new(messages.into_iter().enumerate().map(check).collect::<Result<_, _>>()?)
}

/// Returns the request of a reset.
///
/// # Errors
/// [`Invalid`] names the field at fault.
pub fn reset(message: &proto::ResetRequest) -> Result<Request<'_>, Invalid> {
    Request::new(&message.domain, &message.key)
}
