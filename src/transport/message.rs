//! Decodes the messages of clients, and encodes answers other than decisions. Bounds are enforced before memory is
//! allocated for the bytes. A check borrows from its bytes, so that decoding one allocates nothing; around it, as in
//! Reserve and Lease, prost decodes.

use std::borrow::Cow;

use bytes::BytesMut;
use prost::Message;
use prost_types::Duration;
use smallvec::SmallVec;

use super::fields::{Fields, Value};
use crate::{
    limiter::Invalid,
    proto::{self, LimitSpec},
};

/// Maximum number of fields of a check on the wire, and of its `limit_spec`: twice as many as a valid one can have. Two
/// bytes on the wire may become a few hundred in memory.
pub const MAX_FIELDS: usize = 128;

/// The field numbers of `CheckRequest`.
mod field {
    pub(super) const DOMAIN: u32 = 1;
    pub(super) const KEY: u32 = 2;
    pub(super) const LIMIT_SPEC: u32 = 3;
    pub(super) const COST: u32 = 4;
    pub(super) const MAX_WAIT: u32 = 5;
    pub(super) const FACTOR: u32 = 6;
    pub(super) const SUMMARY_ONLY: u32 = 7;
    pub(super) const REQUEST_ID: u32 = 8;
    pub(super) const DRY_RUN: u32 = 9;
}

/// The field number of the checks of `CheckBatchRequest`, and of the check of other messages.
const CHECKS: u32 = 1;

/// Initial buffer for an answer, enough for two levels.
pub const USUAL_ANSWER: usize = 256;

/// The error for a message that cannot be decoded.
pub const UNREADABLE: &str = "the message is malformed or has too many fields";

/// A `CheckRequest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckMessage<'a> {
    /// The domain's name.
    pub domain: &'a str,
    /// The key's segments.
    pub key: SmallVec<[&'a str; 8]>,
    /// Limits in place of the policy's: the bytes of a `LimitSpec`, not decoded yet.
    pub limit_spec: Option<Cow<'a, [u8]>>,
    /// Units to charge.
    pub cost: Option<i64>,
    /// The longest wait that the client accepts.
    pub max_wait: Option<Duration>,
    /// Divides the counts of the limits.
    pub factor: Option<f64>,
    /// Whether to leave the levels out of the answer.
    pub summary_only: bool,
    /// Whether to decide without charging.
    pub dry_run: bool,
    /// The client's id of the request; empty: none.
    pub request_id: &'a str,
}

impl<'a> From<&'a proto::CheckRequest> for CheckMessage<'a> {
    fn from(message: &'a proto::CheckRequest) -> Self {
        Self {
            domain: &message.domain,
            key: message.key.iter().map(String::as_str).collect(),
            limit_spec: message.limit_spec.as_ref().map(|spec| spec.encode_to_vec().into()),
            cost: message.cost,
            max_wait: message.max_wait,
            factor: message.factor,
            summary_only: message.summary_only,
            dry_run: message.dry_run,
            request_id: &message.request_id,
        }
    }
}

impl<'a> CheckMessage<'a> {
    /// Returns the fields that determine the plan, equal for equal checks: a cost is always given, a factor unless it is
    /// 1. Limits that cannot be decoded become an empty `LimitSpec`.
    pub fn to_check_request(&self) -> proto::CheckRequest {
        proto::CheckRequest {
            domain: self.domain.to_owned(),
            key: self.key.iter().copied().map(str::to_owned).collect(),
            limit_spec: self.limit_spec.as_deref().map(|spec| LimitSpec::decode(spec).unwrap_or_default()),
            cost: Some(self.cost.unwrap_or(1)),
            factor: self.factor.filter(|factor| *factor != 1.0),
            ..proto::CheckRequest::default()
        }
    }

    /// Decodes all bytes except the limits'.
    ///
    /// # Errors
    /// [`Invalid`] with [`UNREADABLE`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, Invalid> {
        // In place: moving a message takes as long as decoding it.
        let mut read = Ok(Self::default());
        if read.as_mut().ok().and_then(|message| message.merge(bytes)).is_none() {
            read = Err(unreadable());
        }
        read
    }

    fn merge(&mut self, bytes: &'a [u8]) -> Option<()> {
        let mut limits = 0;
        for (index, field) in Fields::new(bytes).enumerate() {
            if index == MAX_FIELDS {
                return None;
            }
            match field? {
                (field::DOMAIN, Value::Bytes(text)) => self.domain = std::str::from_utf8(text).ok()?,
                (field::KEY, Value::Bytes(text)) => self.key.push(std::str::from_utf8(text).ok()?),
                (field::LIMIT_SPEC, Value::Bytes(spec)) => {
                    // Several `limit_spec` fields are merged as if their bytes were concatenated: their limits add up.
                    limits += Fields::new(spec).count_up_to(MAX_FIELDS)?;
                    if limits > MAX_FIELDS {
                        return None;
                    }
                    match &mut self.limit_spec {
                        None => self.limit_spec = Some(spec.into()),
                        Some(before) => before.to_mut().extend_from_slice(spec),
                    }
                }
                (field::COST, Value::Varint(cost)) => self.cost = Some(unzigzag(cost)),
                (field::MAX_WAIT, Value::Bytes(wait)) => self.max_wait.get_or_insert_default().merge(wait).ok()?,
                (field::FACTOR, Value::Fixed64(bits)) => self.factor = Some(f64::from_bits(bits)),
                (field::SUMMARY_ONLY, Value::Varint(flag)) => self.summary_only = flag != 0,
                (field::DRY_RUN, Value::Varint(flag)) => self.dry_run = flag != 0,
                (field::REQUEST_ID, Value::Bytes(text)) => self.request_id = std::str::from_utf8(text).ok()?,
                (field::DOMAIN..=field::DRY_RUN, _) => return None,
                _ => {}
            }
        }
        Some(())
    }
}

/// Decodes a `sint64` (ZigZag).
fn unzigzag(word: u64) -> i64 {
    (word >> 1) as i64 ^ -((word & 1) as i64)
}

/// Returns the error for bytes that are not a message.
pub(super) fn unreadable() -> Invalid {
    Invalid::field_error("", UNREADABLE)
}

/// Returns the checks of a message whose first field they are, as `CheckBatchRequest`, still encoded.
///
/// # Errors
/// [`Invalid`] with [`UNREADABLE`] if the bytes are not a message.
pub fn batch(bytes: &[u8]) -> Result<impl Iterator<Item = &[u8]> + Clone, Invalid> {
    if Fields::new(bytes).any(|field| field.is_none()) {
        return Err(unreadable());
    }
    Ok(Fields::new(bytes).flatten().filter_map(|field| match field {
        (CHECKS, Value::Bytes(check)) => Some(check),
        _ => None,
    }))
}

/// Decodes a message without repeated messages, or whose check is within its bounds.
///
/// # Errors
/// [`Invalid`] with [`UNREADABLE`].
pub fn read<M: Message + Default>(bytes: &[u8]) -> Result<M, Invalid> {
    let bounded = Fields::new(bytes).count_up_to(MAX_FIELDS).is_some_and(|fields| fields <= MAX_FIELDS);
    let read = if bounded { M::decode(bytes).ok() } else { None };
    read.ok_or_else(unreadable)
}

/// Decodes a message whose first field is a check: the check, and the message with all its fields. Unlike other fields,
/// the check must not be split into several, each of which would be allowed [`MAX_FIELDS`] fields.
///
/// # Errors
/// [`Invalid`] with [`UNREADABLE`].
pub fn read_with_check<M: Message + Default>(bytes: &[u8]) -> Result<(CheckMessage<'_>, M), Invalid> {
    let mut checks = batch(bytes)?;
    let check = CheckMessage::read(checks.next().unwrap_or_default())?;
    if checks.next().is_some() { Err(unreadable()) } else { Ok((check, read(bytes)?)) }
}

/// Encodes a message.
pub fn encoded(message: &impl Message) -> BytesMut {
    let mut out = BytesMut::with_capacity(USUAL_ANSWER);
    // It fails only without capacity, and the buffer grows.
    let _ = message.encode(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{CheckBatchRequest, CheckRequest, Limit, ReserveRequest, ResetRequest};

    fn check(keys: usize, limits: usize) -> CheckRequest {
        let limit_spec = (limits > 0).then(|| LimitSpec { limits: vec![Limit::default(); limits], charge: 0 });
        CheckRequest {
            domain: "api".to_owned(),
            key: vec!["k".to_owned(); keys],
            cost: Some(-7),
            factor: Some(0.5),
            limit_spec,
            ..Default::default()
        }
    }

    fn reads(bytes: &[u8]) -> bool {
        CheckMessage::read(bytes).is_ok()
    }

    #[test]
    fn messages_beyond_the_bounds_are_rejected_before_decoding() {
        assert!(!reads(&check(1_000_000, 0).encode_to_vec()));
        assert!(!reads(&check(1, 1_000_000).encode_to_vec()));
        assert!(!reads(b"\x12\x01\xff"), "a key that is not UTF-8");
        assert!(!reads(b"\x0a\x01\xff"), "a domain that is not UTF-8");
        assert!(!reads(b"\x20\x01\x28\x01"), "a number for a message");
        let spec = check(1, 100).encode_to_vec();
        assert!(reads(&spec) && !reads(&[spec.clone(), spec].concat()), "limits that add up");
        let behind_a_group = [b"\xa3\x06\xa4\x06", &check(1, 1_000).encode_to_vec()[..]].concat();
        assert!(!reads(&behind_a_group));
        assert!(read::<ResetRequest>(&check(1_000, 0).encode_to_vec()).is_err());
    }

    #[test]
    fn a_reservation_is_read_within_the_bounds_of_its_check() {
        let ttl = Some(Duration { seconds: 3, nanos: 5_000 });
        let message = ReserveRequest { check: Some(check(2, 1)), ttl, on_expiry: 2 };
        let bytes = message.encode_to_vec();
        let expected = (message.check.as_ref().unwrap().into(), message.clone());
        assert_eq!(read_with_check(&bytes).unwrap(), expected);
        assert_eq!(read_with_check(b"").unwrap(), (CheckMessage::default(), ReserveRequest::default()));
        let reads = |bytes: &[u8]| read_with_check::<ReserveRequest>(bytes).is_ok();
        assert!(!reads(&[&bytes[..], &bytes[..]].concat()), "two checks, each with all its fields");
        assert!(!reads(&ReserveRequest { check: Some(check(1_000, 0)), ..message.clone() }.encode_to_vec()));
        assert!(!reads(&ReserveRequest { check: Some(check(1, 1_000)), ..message }.encode_to_vec()));
        assert!(!reads(b"\x08\x01") && !reads(b"\x12\x01\xff") && !reads(b"\x1a\x00"), "fields of other kinds");
        assert!(!reads(&b"\x18\x01".repeat(MAX_FIELDS + 1)));
    }

    #[test]
    fn one_undecodable_check_of_a_batch_does_not_affect_the_others() {
        let good = check(1, 0);
        let mut bytes = CheckBatchRequest { checks: vec![good.clone()] }.encode_to_vec();
        bytes.extend_from_slice(b"\x0a\x03\x12\x01\xff");
        bytes.extend(CheckBatchRequest { checks: vec![good] }.encode_to_vec());
        assert_eq!(batch(&bytes).unwrap().map(reads).collect::<Vec<_>>(), [true, false, true]);
        assert!(batch(&bytes[..bytes.len() - 1]).is_err());
    }
}
