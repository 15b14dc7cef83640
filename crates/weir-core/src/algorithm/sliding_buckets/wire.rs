//! How files and messages write a `sliding_buckets` limit.

use super::SlidingBuckets;
use crate::{
    algorithm::params::{Bounds, ParamError, Source, duration, message_duration, number},
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["count", "period", "resolution"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("count", "10"), ("period", "10s"), ("resolution", "1s")],
    &[("count", "3"), ("period", "1h"), ("resolution", "20m")],
    &[("count", "5"), ("period", "1s"), ("resolution", "300ms")],
    &[("count", "7"), ("period", "1m"), ("resolution", "1m")],
    &[("count", "1000000"), ("period", "1d"), ("resolution", "90s")],
    &[("count", "4294967296"), ("period", "31d"), ("resolution", "1h")],
    &[("count", "2"), ("period", "3us"), ("resolution", "1us")],
    &[("count", "500"), ("period", "31d"), ("resolution", "1d")],
    &[("count", "400"), ("period", "30d"), ("resolution", "6h")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<SlidingBuckets, ParamError> {
    let (period, resolution) = (duration(source, "period")?, duration(source, "resolution")?);
    SlidingBuckets::new(number(source, "count")?, period, resolution, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::SlidingBuckets, bounds: &Bounds) -> Result<SlidingBuckets, ParamError> {
    let period = message_duration("period", message.period.as_ref())?;
    let resolution = message_duration("resolution", message.resolution.as_ref())?;
    SlidingBuckets::new(message.count, period, resolution, bounds)
}
