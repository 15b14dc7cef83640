//! The fields of a protobuf message in the wire format: decoding, borrowed from the bytes, and encoding.

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer of variable length.
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(u64),
    /// Length-delimited: a string, bytes, a message.
    Bytes(&'a [u8]),
    /// Four bytes, or a group. No message here has such fields.
    Other,
}

/// Iterates over the fields of a message: the number and the value of each. Yields `None` and ends at malformed bytes.
#[derive(Clone)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u32, Value<'a>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    /// Returns the fields of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes after the fields taken so far.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Counts the fields, up to one more than `most`; `None` if the bytes are malformed.
    pub fn count_up_to(self, most: usize) -> Option<usize> {
        self.take(most + 1).try_fold(0, |count, field| field.map(|_| count + 1))
    }

    /// Returns the numbers of a packed field of one wire type. Ends at malformed bytes.
    pub fn numbers(mut self, kind: WireType) -> impl Iterator<Item = Value<'a>> {
        std::iter::from_fn(move || self.value(0, kind))
    }

    #[inline]
    fn field(&mut self) -> Option<(u32, Value<'a>)> {
        let (number, kind) = decode_key(&mut self.0).ok()?;
        Some((number, self.value(number, kind)?))
    }

    #[inline]
    fn value(&mut self, number: u32, kind: WireType) -> Option<Value<'a>> {
        Some(match kind {
            WireType::Varint => Value::Varint(decode_varint(&mut self.0).ok()?),
            WireType::SixtyFourBit => Value::Fixed64(self.0.try_get_u64_le().ok()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
                let (taken, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Value::Bytes(taken)
            }
            _ => skip_field(kind, number, &mut self.0, DecodeContext::default()).map(|()| Value::Other).ok()?,
        })
    }
}

/// Appends a length-delimited field: a string or a message.
#[inline]
pub fn put_bytes(field: u32, bytes: &[u8], out: &mut impl BufMut) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}
