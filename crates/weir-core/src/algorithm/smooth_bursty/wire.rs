//! How files and messages write a `smooth_bursty` limit.

use super::SmoothBursty;
use crate::{
    algorithm::params::{
        Bounds, ParamError, Source, duration, message_duration, number, optional_duration, optional_message_duration,
    },
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["count", "period", "max_burst", "max_wait"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("count", "10"), ("period", "10s"), ("max_burst", "10s")],
    &[("count", "5"), ("period", "1s")],
    &[("count", "1"), ("period", "2s")],
    &[("count", "3"), ("period", "1s"), ("max_burst", "5s"), ("max_wait", "2s")],
    &[("count", "7"), ("period", "1m"), ("max_burst", "1m"), ("max_wait", "0s")],
    &[("count", "3000000"), ("period", "1s"), ("max_burst", "1ms")],
    &[("count", "999983"), ("period", "1d"), ("max_burst", "1d"), ("max_wait", "1d")],
    &[("count", "4294967296"), ("period", "31d"), ("max_burst", "31d")],
    &[("count", "1"), ("period", "31d"), ("max_burst", "1us")],
    &[("count", "20"), ("period", "31d"), ("max_burst", "310d")],
    &[("count", "40"), ("period", "31d"), ("max_burst", "310d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<SmoothBursty, ParamError> {
    let (count, period) = (number(source, "count")?, duration(source, "period")?);
    let [max_burst, max_wait] = [optional_duration(source, "max_burst")?, optional_duration(source, "max_wait")?];
    SmoothBursty::new(count, period, max_burst, max_wait, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::SmoothBursty, bounds: &Bounds) -> Result<SmoothBursty, ParamError> {
    let period = message_duration("period", message.period.as_ref())?;
    let max_burst = optional_message_duration("max_burst", message.max_burst.as_ref())?;
    let max_wait = optional_message_duration("max_wait", message.max_wait.as_ref())?;
    SmoothBursty::new(message.count, period, max_burst, max_wait, bounds)
}
