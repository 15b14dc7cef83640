//! Decodes a `LeaseRequest`.

use super::{CheckMessage, MAX_FIELDS, unreadable};
use crate::{
    limiter::Invalid,
    transport::fields::{Fields, Value},
};

/// The field numbers of `LeaseRequest`.
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
    /// The check to decide, with the key of the lease.
    pub check: CheckMessage<'a>,
    /// The random id of the holder.
    pub holder: &'a [u8],
    /// The holder's number of the lease.
    pub lease: u64,
    /// The sequence number of the request.
    pub sequence: u64,
    /// Units spent since the lease began.
    pub spent: u64,
    /// Units that the holder keeps.
    pub kept: u64,
    /// Units that the holder wants in addition.
    pub want: u64,
    /// The generation of the terms that the client has.
    pub generation: u64,
}

impl<'a> LeaseMessage<'a> {
    /// Decodes all bytes, as [`ReserveMessage::read`](super::ReserveMessage::read) does.
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
