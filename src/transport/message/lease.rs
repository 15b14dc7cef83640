//! A `LeaseRequest`.

use super::{CheckMessage, MAX_FIELDS, unreadable};
use crate::{
    limiter::Invalid,
    transport::fields::{Fields, Value},
};

/// The fields of `LeaseRequest`.
mod field {
    pub(super) const CHECK: u32 = 1;
    pub(super) const HOLDER: u32 = 2;
    pub(super) const LEASE: u32 = 3;
    pub(super) const SEQUENCE: u32 = 4;
    pub(super) const SPENT: u32 = 5;
    pub(super) const KEPT: u32 = 6;
    pub(super) const WANT: u32 = 7;
    pub(super) const GENERATION: u32 = 8;
}

/// A `LeaseRequest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseMessage<'a> {
    /// The key, and what is to be decided.
    pub check: CheckMessage<'a>,
    /// Who holds.
    pub holder: &'a [u8],
    /// Its number for the lease.
    pub lease: u64,
    /// The number of the request.
    pub sequence: u64,
    /// Units spent since the lease began.
    pub spent: u64,
    /// Units kept.
    pub kept: u64,
    /// Units wanted in addition.
    pub want: u64,
    /// That of the terms that the client knows.
    pub generation: u64,
}

impl<'a> LeaseMessage<'a> {
    /// Reads all of the bytes, as [`ReserveMessage::read`](super::ReserveMessage::read) does.
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
                (field::HOLDER, Value::Bytes(bytes)) => message.holder = bytes,
                (field::LEASE, Value::Varint(number)) => message.lease = number,
                (field::SEQUENCE, Value::Varint(number)) => message.sequence = number,
                (field::SPENT, Value::Varint(units)) => message.spent = units,
                (field::KEPT, Value::Varint(units)) => message.kept = units,
                (field::WANT, Value::Varint(units)) => message.want = units,
                (field::GENERATION, Value::Fixed64(bits)) => message.generation = bits,
                (field::CHECK..=field::GENERATION, _) => return None,
                _ => {}
            }
        }
        message.check.merge(check.unwrap_or_default())?;
        Some(message)
    }
}
