//! How files and messages write a `gcra` limit.

use super::Gcra;
use crate::{
    algorithm::params::{Bounds, ParamError, Source, duration, message_duration, number},
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["burst", "count", "period"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("burst", "9"), ("count", "10"), ("period", "10s")],
    &[("burst", "15"), ("count", "30"), ("period", "60s")],
    &[("burst", "5"), ("count", "10"), ("period", "15s")],
    &[("burst", "0"), ("count", "1"), ("period", "2s")],
    &[("burst", "9"), ("count", "3"), ("period", "1s")],
    &[("burst", "20"), ("count", "7"), ("period", "1m")],
    &[("burst", "1000"), ("count", "3000000"), ("period", "1s")],
    &[("burst", "100"), ("count", "999983"), ("period", "1d")],
    &[("burst", "0"), ("count", "1"), ("period", "31d")],
    &[("burst", "499"), ("count", "20"), ("period", "31d")],
    &[("burst", "399"), ("count", "1"), ("period", "1d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<Gcra, ParamError> {
    Gcra::new(number(source, "burst")?, number(source, "count")?, duration(source, "period")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::Gcra, bounds: &Bounds) -> Result<Gcra, ParamError> {
    Gcra::new(message.burst, message.count, message_duration("period", message.period.as_ref())?, bounds)
}
