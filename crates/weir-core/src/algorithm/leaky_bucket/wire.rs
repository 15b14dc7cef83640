//! How files and messages write a `leaky_bucket` limit.

use super::{DEFAULT_DRIP_RATE, DEFAULT_DRIP_SIZE, LeakyBucket};
use crate::{
    algorithm::params::{Bounds, ParamError, Source, number, optional_duration, optional_message_duration},
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["size", "drip_size", "drip_rate"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("size", "10"), ("drip_rate", "1s")],
    &[("size", "3")],
    &[("size", "10"), ("drip_size", "2")],
    &[("size", "4096"), ("drip_size", "2"), ("drip_rate", "1ms")],
    &[("size", "1"), ("drip_rate", "1us")],
    &[("size", "5"), ("drip_size", "7"), ("drip_rate", "333333us")],
    &[("size", "4294967296"), ("drip_size", "3"), ("drip_rate", "700ms")],
    &[("size", "4294967296"), ("drip_size", "4294967296"), ("drip_rate", "31d")],
    &[("size", "500"), ("drip_rate", "6h")],
    &[("size", "400"), ("drip_size", "10"), ("drip_rate", "1d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<LeakyBucket, ParamError> {
    let drip_size = source.text("drip_size").map(|_| number(source, "drip_size")).transpose()?;
    let drip_rate = optional_duration(source, "drip_rate")?;
    new(number(source, "size")?, drip_size, drip_rate, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::LeakyBucket, bounds: &Bounds) -> Result<LeakyBucket, ParamError> {
    let drip_rate = optional_message_duration("drip_rate", message.drip_rate.as_ref())?;
    new(message.size, message.drip_size, drip_rate, bounds)
}

fn new(size: u64, drip_size: Option<u64>, drip_rate: Option<i64>, bounds: &Bounds) -> Result<LeakyBucket, ParamError> {
    LeakyBucket::new(size, drip_size.unwrap_or(DEFAULT_DRIP_SIZE), drip_rate.unwrap_or(DEFAULT_DRIP_RATE), bounds)
}
