//! How files and messages write a `leaky_queue` limit.

use super::LeakyQueue;
use crate::{
    algorithm::params::{
        Bounds, ParamError, Source, duration, message_duration, number, optional_duration, optional_message_duration,
    },
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["count", "period", "burst", "delay", "max_wait"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("count", "10"), ("period", "10s"), ("burst", "9")],
    &[("count", "10"), ("period", "1s"), ("burst", "5")],
    &[("count", "10"), ("period", "1s"), ("burst", "5"), ("delay", "5")],
    &[("count", "1"), ("period", "2s"), ("burst", "5"), ("delay", "2")],
    &[("count", "3"), ("period", "1s"), ("burst", "9"), ("delay", "4"), ("max_wait", "1s")],
    &[("count", "7"), ("period", "1m"), ("burst", "20"), ("max_wait", "0s")],
    &[("count", "3000000"), ("period", "1s"), ("burst", "1000"), ("delay", "1000")],
    &[("count", "999983"), ("period", "1d"), ("burst", "100"), ("delay", "50"), ("max_wait", "1d")],
    &[("count", "600000"), ("period", "1s"), ("burst", "4294967296"), ("delay", "4294967296")],
    &[("count", "1"), ("period", "31d"), ("burst", "0")],
    &[("count", "20"), ("period", "31d"), ("burst", "499"), ("delay", "499")],
    &[("count", "1"), ("period", "1d"), ("burst", "399"), ("delay", "399")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<LeakyQueue, ParamError> {
    let (count, period, burst) = (number(source, "count")?, duration(source, "period")?, number(source, "burst")?);
    let delay = source.text("delay").map_or(Ok(0), |_| number(source, "delay"))?;
    LeakyQueue::new(count, period, burst, delay, optional_duration(source, "max_wait")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::LeakyQueue, bounds: &Bounds) -> Result<LeakyQueue, ParamError> {
    let proto::LeakyQueue { count, burst, delay, .. } = *message;
    let period = message_duration("period", message.period.as_ref())?;
    let max_wait = optional_message_duration("max_wait", message.max_wait.as_ref())?;
    LeakyQueue::new(count, period, burst, delay, max_wait, bounds)
}
