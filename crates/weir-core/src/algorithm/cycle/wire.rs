//! How files and messages write a `cycle` limit.

use super::Cycle;
use crate::{
    algorithm::params::{
        Bounds, ParamError, Source, duration, message_duration, number, optional_duration, optional_message_duration,
    },
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["count", "period", "max_wait"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("count", "10"), ("period", "10s")],
    &[("count", "2"), ("period", "1s"), ("max_wait", "1s")],
    &[("count", "7"), ("period", "1s")],
    &[("count", "3"), ("period", "1m"), ("max_wait", "5m")],
    &[("count", "30"), ("period", "1m"), ("max_wait", "0s")],
    &[("count", "1"), ("period", "1us")],
    &[("count", "4294967296"), ("period", "83ms")],
    &[("count", "4294967296"), ("period", "31d")],
    &[("count", "500"), ("period", "31d")],
    &[("count", "400"), ("period", "30d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<Cycle, ParamError> {
    let (count, period) = (number(source, "count")?, duration(source, "period")?);
    Cycle::new(count, period, optional_duration(source, "max_wait")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::Cycle, bounds: &Bounds) -> Result<Cycle, ParamError> {
    let period = message_duration("period", message.period.as_ref())?;
    let max_wait = optional_message_duration("max_wait", message.max_wait.as_ref())?;
    Cycle::new(message.count, period, max_wait, bounds)
}
