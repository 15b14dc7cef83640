//! How files and messages write a `token_bucket` limit.

use super::TokenBucket;
use crate::{
    algorithm::params::{Bounds, ParamError, Source, duration, message_duration, number},
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["capacity", "count", "period"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("capacity", "10"), ("count", "10"), ("period", "10s")],
    &[("capacity", "3"), ("count", "1"), ("period", "2s")],
    &[("capacity", "100"), ("count", "7"), ("period", "1s")],
    &[("capacity", "1"), ("count", "999983"), ("period", "1d")],
    &[("capacity", "4294967296"), ("count", "600000"), ("period", "1s")],
    &[("capacity", "500"), ("count", "20"), ("period", "31d")],
    &[("capacity", "400"), ("count", "1"), ("period", "1d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<TokenBucket, ParamError> {
    TokenBucket::new(number(source, "capacity")?, number(source, "count")?, duration(source, "period")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::TokenBucket, bounds: &Bounds) -> Result<TokenBucket, ParamError> {
    TokenBucket::new(message.capacity, message.count, message_duration("period", message.period.as_ref())?, bounds)
}
