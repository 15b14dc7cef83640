//! Decodes a request.
//!
//! If the call fails, Envoy lets the request pass. So the content of a descriptor, which an outsider may control, must
//! not cause an error: a value that is not UTF-8 (a header may contain any bytes) is decoded with U+FFFD in place of
//! invalid bytes. Only the number of descriptors is bounded here, which Envoy's configuration determines.

use data_encoding::HEXLOWER;
use prost::Message;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use tonic::Status;
use weir_core::domain::{Unit, request::MAX_COST};

use crate::{
    limiter::descriptors::{Descriptor, DescriptorLimit, DescriptorsRequest, MAX_DESCRIPTORS},
    transport::fields::{Fields, Value},
};

/// Maximum number of entries of a descriptor that are kept: one more than any rule has, which is enough to match none.
/// A hash of the others is appended to the last value, so that limits given in such descriptors are counted separately.
const MAX_ENTRIES: usize = 17;
/// The character before the hash. A value from a header never has it.
const BEFORE_HASH: char = '\0';

/// The field numbers of the messages.
mod field {
    pub(super) const DOMAIN: u32 = 1;
    pub(super) const DESCRIPTORS: u32 = 2;
    pub(super) const ENTRIES: u32 = 1;
    pub(super) const KEY: u32 = 1;
    pub(super) const VALUE: u32 = 2;
}

/// A decoded request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitRequest {
    /// The descriptors. Those without their own hits have the request's.
    pub query: DescriptorsRequest,
    /// Its `hits_addend`; 0 if absent.
    pub hits_addend: u32,
    /// Whether each descriptor has its own hits.
    pub own_hits: Vec<bool>,
}

/// The terms of a request for all its descriptors.
#[derive(Clone, PartialEq, Message)]
struct RequestTerms {
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

/// A descriptor without its entries.
#[derive(Clone, PartialEq, Message)]
struct DescriptorTerms {
    #[prost(message, optional, tag = "2")]
    limit: Option<LimitTerms>,
    /// A `google.protobuf.UInt64Value`.
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
struct LimitTerms {
    #[prost(uint32, tag = "1")]
    requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    unit: i32,
}

/// The error for bytes that are not a request.
const UNREADABLE: &str = "the message is malformed";

impl RateLimitRequest {
    /// Decodes all bytes.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with a constant message.
    pub fn read(bytes: &[u8]) -> Result<Self, Status> {
        read(bytes).ok_or_else(|| Status::invalid_argument(UNREADABLE))
    }
}

fn read(bytes: &[u8]) -> Option<RateLimitRequest> {
    let RequestTerms { hits_addend } = RequestTerms::decode(bytes).ok()?;
    let mut request = RateLimitRequest { hits_addend, ..RateLimitRequest::default() };
    for field in Fields::new(bytes) {
        match field? {
            (field::DOMAIN, Value::Bytes(text)) => request.query.domain = lossy(text),
            // One more than the maximum is kept, which shows that there are too many.
            (field::DESCRIPTORS, Value::Bytes(bytes)) if request.own_hits.len() <= MAX_DESCRIPTORS => {
                let terms = DescriptorTerms::decode(bytes).ok()?;
                request.own_hits.push(terms.hits_addend.is_some());
                request.query.descriptors.push(descriptor(bytes, &terms, hits_addend)?);
            }
            _ => {}
        }
    }
    Some(request)
}

fn descriptor(bytes: &[u8], terms: &DescriptorTerms, hits_of_all: u32) -> Option<Descriptor> {
    let (mut entries, mut others) = (Vec::new(), None);
    for field in Fields::new(bytes) {
        match field? {
            (field::ENTRIES, Value::Bytes(entry)) if entries.len() < MAX_ENTRIES => entries.push(self::entry(entry)?),
            (field::ENTRIES, Value::Bytes(entry)) => {
                let others = others.get_or_insert_with(|| Context::new(&SHA256));
                let (key, value) = self::entry(entry)?;
                for text in [key, value] {
                    others.update(&(text.len() as u64).to_le_bytes());
                    others.update(text.as_bytes());
                }
            }
            _ => {}
        }
    }
    if let (Some((_, value)), Some(others)) = (entries.last_mut(), others) {
        value.push(BEFORE_HASH);
        value.push_str(&HEXLOWER.encode(others.finish().as_ref()));
    }
    let hits = terms.hits_addend.unwrap_or_else(|| u64::from(hits_of_all.max(1)));
    let hits = hits.min(MAX_COST as u64) as i64;
    let over = terms.limit.as_ref().and_then(|limit| {
        let unit = unit(limit.unit)?;
        Some(DescriptorLimit { requests_per_unit: limit.requests_per_unit, unit })
    });
    Some(Descriptor { entries, hits: if terms.is_negative_hits { -hits } else { hits }, over })
}

/// Returns the entries of a descriptor that are kept, as they were sent.
pub fn entries_as_sent(descriptor: &Descriptor) -> impl Iterator<Item = (&str, &str)> {
    descriptor.entries.iter().enumerate().map(|(index, (key, value))| {
        let cut = value.rsplit_once(BEFORE_HASH).filter(|(_, hash)| {
            index + 1 == MAX_ENTRIES && hash.len() == 2 * SHA256_OUTPUT_LEN && HEXLOWER.decode(hash.as_bytes()).is_ok()
        });
        (&**key, cut.map_or(&**value, |(value, _)| value))
    })
}

fn entry(bytes: &[u8]) -> Option<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    for field in Fields::new(bytes) {
        match field? {
            (field::KEY, Value::Bytes(text)) => key = lossy(text),
            (field::VALUE, Value::Bytes(text)) => value = lossy(text),
            _ => {}
        }
    }
    Some((key, value))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Converts a `RateLimitUnit`. `None` for an unknown one, whose limit is ignored.
fn unit(number: i32) -> Option<Unit> {
    Some(match number {
        1 => Unit::Second,
        2 => Unit::Minute,
        3 => Unit::Hour,
        4 => Unit::Day,
        5 => Unit::Month,
        6 => Unit::Year,
        7 => Unit::Week,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
