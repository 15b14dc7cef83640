//! How files and messages write a `warming_up` limit.

use super::{COLD_FACTOR, WarmingUp};
use crate::{
    algorithm::params::{
        Bounds, ParamError, Source, duration, message_duration, number, optional_duration, optional_message_duration,
        real,
    },
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["count", "period", "warm_up", "cold_factor", "max_wait"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("count", "1"), ("period", "1s"), ("warm_up", "10s")],
    &[("count", "2"), ("period", "1s"), ("warm_up", "4s"), ("max_wait", "2s")],
    &[("count", "5"), ("period", "1s"), ("warm_up", "4s"), ("cold_factor", "10")],
    &[("count", "3"), ("period", "1s"), ("warm_up", "10s")],
    &[("count", "7"), ("period", "1m"), ("warm_up", "1h"), ("max_wait", "10s")],
    &[("count", "3000000"), ("period", "1s"), ("warm_up", "1s"), ("cold_factor", "1.5")],
    &[("count", "999983"), ("period", "1d"), ("warm_up", "1h"), ("cold_factor", "1000000")],
    &[("count", "4294967296"), ("period", "1us"), ("warm_up", "1us")],
    &[("count", "1"), ("period", "31d"), ("warm_up", "1us"), ("cold_factor", "1.0001")],
    &[("count", "1"), ("period", "1us"), ("warm_up", "1h"), ("cold_factor", "2")],
    &[("count", "500"), ("period", "31d"), ("warm_up", "31d")],
    &[("count", "400"), ("period", "30d"), ("warm_up", "30d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<WarmingUp, ParamError> {
    let (count, period) = (number(source, "count")?, duration(source, "period")?);
    let warm_up = duration(source, "warm_up")?;
    let cold_factor = source.text("cold_factor").map_or(Ok(COLD_FACTOR), |_| real(source, "cold_factor"))?;
    WarmingUp::new(count, period, warm_up, cold_factor, optional_duration(source, "max_wait")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::WarmingUp, bounds: &Bounds) -> Result<WarmingUp, ParamError> {
    let period = message_duration("period", message.period.as_ref())?;
    let warm_up = message_duration("warm_up", message.warm_up.as_ref())?;
    let max_wait = optional_message_duration("max_wait", message.max_wait.as_ref())?;
    let cold_factor = message.cold_factor.unwrap_or(COLD_FACTOR);
    WarmingUp::new(message.count, period, warm_up, cold_factor, max_wait, bounds)
}
