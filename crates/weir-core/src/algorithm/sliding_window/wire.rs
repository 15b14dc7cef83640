//! How files and messages write a `sliding_window` limit.

use super::SlidingWindow;
use crate::{
    algorithm::params::{Bounds, ParamError, Source, duration, message_duration, number},
    proto,
};

/// See [`crate::algorithm::Entry::fields`].
pub const FIELDS: &[&str] = &["count", "period"];

/// See [`crate::algorithm::Entry::examples`].
pub const EXAMPLES: &[&[(&str, &str)]] = &[
    &[("count", "10"), ("period", "10s")],
    &[("count", "100"), ("period", "60s")],
    &[("count", "3"), ("period", "1s")],
    &[("count", "7"), ("period", "1m")],
    &[("count", "5"), ("period", "500ms")],
    &[("count", "1"), ("period", "1us")],
    &[("count", "3000000"), ("period", "1s")],
    &[("count", "999983"), ("period", "1d")],
    &[("count", "67108864"), ("period", "31d")],
    &[("count", "500"), ("period", "31d")],
    &[("count", "400"), ("period", "30d")],
];

/// From a file's map.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unreadable or out of bounds.
pub fn from_source(source: &dyn Source, bounds: &Bounds) -> Result<SlidingWindow, ParamError> {
    SlidingWindow::new(number(source, "count")?, duration(source, "period")?, bounds)
}

/// From a message.
///
/// # Errors
/// [`ParamError`] for a field that is missing or out of bounds.
pub fn from_proto(message: &proto::SlidingWindow, bounds: &Bounds) -> Result<SlidingWindow, ParamError> {
    SlidingWindow::new(message.count, message_duration("period", message.period.as_ref())?, bounds)
}
