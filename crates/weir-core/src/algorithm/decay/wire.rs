//! How files and messages write a `decay` limit.

use super::Decay;
use crate::{
    algorithm::params::{Bounds, ParamError, Source, duration, message_duration, real},
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["max", "resolution", "decay"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("max", "10"), ("resolution", "1s"), ("decay", "1.125")],
    &[("max", "100"), ("resolution", "1m"), ("decay", "1.2")],
    &[("max", "2.5"), ("resolution", "1s"), ("decay", "2")],
    &[("max", "20"), ("resolution", "50ms"), ("decay", "2")],
    &[("max", "1"), ("resolution", "1m"), ("decay", "1000000")],
    &[("max", "999983.25"), ("resolution", "1d"), ("decay", "1.01")],
    &[("max", "3000000"), ("resolution", "333333us"), ("decay", "1.001")],
    &[("max", "4294967296"), ("resolution", "1us"), ("decay", "1.001")],
    &[("max", "4294967296"), ("resolution", "31d"), ("decay", "1.11")],
    &[("max", "500"), ("resolution", "6h"), ("decay", "1.001")],
    &[("max", "400"), ("resolution", "30d"), ("decay", "2")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<Decay, ParamError> {
    Decay::new(real(source, "max")?, duration(source, "resolution")?, real(source, "decay")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::Decay, bounds: &Bounds) -> Result<Decay, ParamError> {
    Decay::new(message.max, message_duration("resolution", message.resolution.as_ref())?, message.decay, bounds)
}
