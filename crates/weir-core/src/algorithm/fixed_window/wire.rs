//! How files and messages write a `fixed_window` limit.

use super::FixedWindow;
use crate::{
    algorithm::params::{Bounds, ParamError, Source, duration, flag, message_duration, number},
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["count", "period", "charge_denied", "per_key_phase"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("count", "10"), ("period", "10s")],
    &[("count", "5"), ("period", "60s")],
    &[("count", "5000"), ("period", "1d")],
    &[("count", "3"), ("period", "1s"), ("charge_denied", "true")],
    &[("count", "10"), ("period", "1m"), ("per_key_phase", "true")],
    &[("count", "4294967296"), ("period", "31d"), ("charge_denied", "true"), ("per_key_phase", "true")],
    &[("count", "1"), ("period", "1us")],
    &[("count", "500"), ("period", "31d")],
    &[("count", "400"), ("period", "30d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<FixedWindow, ParamError> {
    let (count, period) = (number(source, "count")?, duration(source, "period")?);
    FixedWindow::new(count, period, flag(source, "charge_denied")?, flag(source, "per_key_phase")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::FixedWindow, bounds: &Bounds) -> Result<FixedWindow, ParamError> {
    let period = message_duration("period", message.period.as_ref())?;
    FixedWindow::new(message.count, period, message.charge_denied, message.per_key_phase, bounds)
}
