//! How messages are read: by prost, but with bounds that hold before anything is made of the bytes, and with a check that
//! cannot be read answered in its place instead of ending what it came in.

use std::marker::PhantomData;

use prost::{Message, bytes::Buf};
use tonic::{
    Status,
    codec::{BufferSettings, DecodeBuf, Decoder},
};
use tonic_prost::ProstEncoder;

use super::decode::MAX_BATCH;
use crate::proto::{CheckBatchRequest, CheckBatchResponse, CheckRequest, CheckResponse, ResetRequest, ResetResponse};

/// Most fields of a check, and of the limits that it brings, on the wire; twice what a valid one can have. Two bytes on
/// the wire may become a few hundred in memory.
const MAX_FIELDS: usize = 128;

/// Deepest nesting of groups.
const MAX_GROUPS: usize = 16;

/// The field of `CheckRequest` that holds limits.
const LIMIT_SPEC: u64 = 3;
/// The field of `CheckBatchRequest` that holds checks.
const CHECKS: u64 = 1;

/// Encodes `T` and reads `U`.
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Readable> tonic::codec::Codec for Codec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Reader<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        Reader(PhantomData)
    }
}

/// Reads messages of one kind.
pub struct Reader<U>(PhantomData<U>);

impl<U: Readable> Decoder for Reader<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        U::read(&bytes).map(Some)
    }
}

/// A message that can be read.
pub trait Readable: Send + Sized + 'static {
    /// Reads all of the bytes.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with a fixed sentence.
    fn read(bytes: &[u8]) -> Result<Self, Status>;
}

/// Reads what this crate's own clients are answered.
macro_rules! readable_as_it_is {
    ($($message:ty),+) => {
        $(impl Readable for $message {
            fn read(bytes: &[u8]) -> Result<Self, Status> {
                Self::decode(bytes).map_err(|_| Status::invalid_argument(UNREADABLE))
            }
        })+
    };
}

readable_as_it_is!(CheckResponse, CheckBatchResponse, ResetResponse);

impl Readable for ResetRequest {
    fn read(bytes: &[u8]) -> Result<Self, Status> {
        let read = if is_bounded(bytes) { Self::decode(bytes).ok() } else { None };
        read.ok_or_else(|| Status::invalid_argument(UNREADABLE))
    }
}

impl Readable for CheckRequest {
    fn read(bytes: &[u8]) -> Result<Self, Status> {
        Ok(read_check(bytes))
    }
}

impl Readable for CheckBatchRequest {
    /// One check more than allowed is enough to tell that there are too many.
    fn read(bytes: &[u8]) -> Result<Self, Status> {
        let mut checks = Vec::new();
        for field in Fields(bytes) {
            match field {
                Some((CHECKS, Some(check))) if checks.len() <= MAX_BATCH => checks.push(read_check(check)),
                Some(_) => {}
                None => return Err(Status::invalid_argument(UNREADABLE)),
            }
        }
        Ok(Self { checks })
    }
}

/// What is said of a message that cannot be read.
pub const UNREADABLE: &str = "the message cannot be read, or has far more fields than it may";

fn read_check(bytes: &[u8]) -> CheckRequest {
    let mut limits = 0;
    for field in Fields(bytes) {
        if let Some((LIMIT_SPEC, Some(spec))) = field {
            // Several make one: their limits add up.
            limits += count(spec).unwrap_or(usize::MAX / 2);
        }
    }
    let bounded = is_bounded(bytes) && limits <= MAX_FIELDS;
    let check = if bounded { CheckRequest::decode(bytes).ok() } else { None };
    check.unwrap_or_else(unreadable)
}

fn is_bounded(bytes: &[u8]) -> bool {
    count(bytes).is_some_and(|fields| fields <= MAX_FIELDS)
}

/// How many fields there are, up to one more than is allowed; `None` where the bytes are no message.
fn count(bytes: &[u8]) -> Option<usize> {
    Fields(bytes).take(MAX_FIELDS + 1).try_fold(0, |count, field| field.map(|_| count + 1))
}

/// What stands for a check that cannot be read: no valid one looks like it.
fn unreadable() -> CheckRequest {
    CheckRequest { factor: Some(f64::NAN), ..CheckRequest::default() }
}

/// Whether a check could not be read.
pub fn is_unreadable(check: &CheckRequest) -> bool {
    check.key.is_empty() && check.factor.is_some_and(f64::is_nan)
}

/// The fields of a message as they stand on the wire: the number, and the content where it has a length. Ends with `None`
/// at bytes that are no field.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Option<&'a [u8]>)>;

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
    /// The fields of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn field(&mut self) -> Option<(u64, Option<&'a [u8]>)> {
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => self.varint().map(|_| None)?,
            1 => self.take(8).map(|_| None)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Some(self.take(length)?)
            }
            3 => self.skip_group(tag >> 3).map(|()| None)?,
            5 => self.take(4).map(|_| None)?,
            _ => return None,
        };
        Some((tag >> 3, content))
    }

    /// Skips what an old client may send in a field that nobody knows here: a group, with groups inside.
    fn skip_group(&mut self, number: u64) -> Option<()> {
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            let tag = self.varint()?;
            match tag & 7 {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.varint()?).ok()?;
                    self.take(length)?;
                }
                3 if open.len() < MAX_GROUPS => open.push(tag >> 3),
                4 if tag >> 3 == *innermost => drop(open.pop()),
                5 => drop(self.take(4)?),
                _ => return None,
            }
        }
        Some(())
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::{Limit, LimitSpec};

    fn check(keys: usize, limits: usize) -> CheckRequest {
        let limit_spec = (limits > 0).then(|| LimitSpec { limits: vec![Limit::default(); limits], charge: 0 });
        CheckRequest {
            key: vec!["k".to_owned(); keys],
            cost: Some(-7),
            factor: Some(0.5),
            limit_spec,
            ..Default::default()
        }
    }

    #[test]
    fn what_is_bounded_comes_back_as_it_was() {
        for message in [check(1, 0), check(33, 17), CheckRequest::default()] {
            assert_eq!(CheckRequest::read(&message.encode_to_vec()).unwrap(), message);
        }
        let batch = CheckBatchRequest { checks: vec![check(3, 1), CheckRequest::default(), check(2, 0)] };
        assert_eq!(CheckBatchRequest::read(&batch.encode_to_vec()).unwrap(), batch);
    }

    #[test]
    fn what_is_not_is_told_without_being_made() {
        assert!(is_unreadable(&read_check(&check(1_000_000, 0).encode_to_vec())));
        assert!(is_unreadable(&read_check(&check(1, 1_000_000).encode_to_vec())));
        assert!(is_unreadable(&read_check(b"\x12\x01\xff")), "a key that is not UTF-8");
        let spec = check(1, 100).encode_to_vec();
        assert!(is_unreadable(&read_check(&[spec.clone(), spec].concat())), "limits that add up");
        let behind_a_group = [b"\xa3\x06\xa4\x06", &check(1, 1_000).encode_to_vec()[..]].concat();
        assert!(is_unreadable(&read_check(&behind_a_group)));
        assert!(ResetRequest::read(&check(1_000, 0).encode_to_vec()).is_err());
        let batch = CheckBatchRequest { checks: vec![CheckRequest::default(); 1_000_000] };
        assert_eq!(CheckBatchRequest::read(&batch.encode_to_vec()).unwrap().checks.len(), MAX_BATCH + 1);
    }

    #[test]
    fn unknown_groups_are_skipped() {
        let good = check(2, 1);
        let group = b"\xa3\x06\x08\x05\xab\x06\xac\x06\xa4\x06";
        assert_eq!(CheckRequest::read(&[&group[..], &good.encode_to_vec()].concat()).unwrap(), good);
        let batch = CheckBatchRequest { checks: vec![good] };
        assert_eq!(CheckBatchRequest::read(&[&group[..], &batch.encode_to_vec()].concat()).unwrap(), batch);
        for broken in [&b"\xa3\x06"[..], b"\xa3\x06\xac\x06", &b"\xa3\x06".repeat(1_000)] {
            assert!(is_unreadable(&read_check(broken)));
        }
    }

    #[test]
    fn one_bad_check_of_a_batch_leaves_the_others() {
        let good = check(1, 0);
        let mut bytes = CheckBatchRequest { checks: vec![good.clone()] }.encode_to_vec();
        bytes.extend_from_slice(b"\x0a\x03\x12\x01\xff");
        bytes.extend(CheckBatchRequest { checks: vec![good.clone()] }.encode_to_vec());
        let read = CheckBatchRequest::read(&bytes).unwrap().checks;
        assert_eq!((&read[0], is_unreadable(&read[1]), &read[2]), (&good, true, &good));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = CheckRequest::read(&bytes);
            let _ = CheckBatchRequest::read(&bytes);
            let _ = ResetRequest::read(&bytes);
        }
    }
}
