//! How files and messages write a `sliding_log` limit.

use super::SlidingLog;
use crate::{
    algorithm::params::{
        Bounds, ParamError, Source, duration, flag, message_duration, number, optional_duration,
        optional_message_duration,
    },
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["count", "period", "min_interval", "charge_denied"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("count", "10"), ("period", "10s")],
    &[("count", "3"), ("period", "10s")],
    &[("count", "5"), ("period", "10s"), ("min_interval", "1s")],
    &[("count", "5"), ("period", "1s"), ("charge_denied", "true")],
    &[("count", "7"), ("period", "1m"), ("min_interval", "1m"), ("charge_denied", "true")],
    &[("count", "10000"), ("period", "1s")],
    &[("count", "1"), ("period", "1us"), ("min_interval", "1us")],
    &[("count", "500"), ("period", "31d")],
    &[("count", "400"), ("period", "30d"), ("charge_denied", "true")],
    &[("count", "400"), ("period", "29d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<SlidingLog, ParamError> {
    let (count, period) = (number(source, "count")?, duration(source, "period")?);
    let min_interval = optional_duration(source, "min_interval")?.unwrap_or(0);
    SlidingLog::new(count, period, min_interval, flag(source, "charge_denied")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::SlidingLog, bounds: &Bounds) -> Result<SlidingLog, ParamError> {
    let period = message_duration("period", message.period.as_ref())?;
    let min_interval = optional_message_duration("min_interval", message.min_interval.as_ref())?.unwrap_or(0);
    SlidingLog::new(message.count, period, min_interval, message.charge_denied, bounds)
}
