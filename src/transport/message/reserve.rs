//! Decodes a `ReserveRequest`.

use prost::Message as _;
use prost_types::Duration;

use super::{CheckMessage, MAX_FIELDS, unreadable};
use crate::{
    limiter::Invalid,
    transport::fields::{Fields, Value},
};

/// The field numbers of `ReserveRequest`.
mod field {
    pub(super) const CHECK: u32 = 1;
    pub(super) const TTL: u32 = 2;
    pub(super) const ON_EXPIRY: u32 = 3;
}

/// A `ReserveRequest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReserveMessage<'a> {
    /// The check whose cost to reserve.
    pub check: CheckMessage<'a>,
    /// The TTL of the reservation.
    pub ttl: Option<Duration>,
    /// A `proto::OnExpiry`.
    pub on_expiry: i32,
}

impl<'a> ReserveMessage<'a> {
    /// Decodes all bytes. Unlike other fields, the check must not be split into several, each of which would be allowed
    /// `MAX_FIELDS` fields.
    ///
    /// # Errors
    /// [`Invalid`] with [`UNREADABLE`](super::UNREADABLE).
    pub fn read(bytes: &'a [u8]) -> Result<Self, Invalid> {
        Self::parse(bytes).ok_or_else(unreadable)
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (mut message, mut check) = (Self::default(), None);
        for (index, field) in Fields::new(bytes).enumerate() {
            if index == MAX_FIELDS {
                return None;
            }
            match field? {
                (field::CHECK, Value::Bytes(bytes)) if check.is_none() => check = Some(bytes),
                (field::TTL, Value::Bytes(ttl)) => message.ttl.get_or_insert_default().merge(ttl).ok()?,
                (field::ON_EXPIRY, Value::Varint(number)) => message.on_expiry = number as i32,
                (field::CHECK..=field::ON_EXPIRY, _) => return None,
                _ => {}
            }
        }
        message.check.merge(check.unwrap_or_default())?;
        Some(message)
    }
}
