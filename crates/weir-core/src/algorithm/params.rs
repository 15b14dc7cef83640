//! Parameters: where they come from, and the bounds they share.

use thiserror::Error;

use crate::domain::{
    Micros,
    ask::MAX_WAIT,
    time::{DAY, format_duration, parse_duration},
};

/// Largest count or size.
pub const MAX_COUNT: u64 = 1 << 32;
/// Longest period of any limit.
pub const MAX_PERIOD: Micros = 366 * DAY;
/// Longest time that a whole limit may span, so that a moment plus it stays exact in a double.
pub const MAX_DEPTH: Micros = 1 << 50;
/// Bound on units times the denominator of the rate, for the same reason.
const MAX_PARTS: u128 = 1 << 53;

/// The service's own bounds on limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest period that files and callers may name; at most [`MAX_PERIOD`].
    pub max_period: Micros,
}

impl Default for Bounds {
    /// 31 days.
    fn default() -> Self {
        Self { max_period: 31 * DAY }
    }
}

/// Why parameters make no limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct ParamError {
    /// The parameter at fault, as files and messages name it.
    pub field: String,
    /// What is wrong with it, as a sentence that names it.
    pub reason: String,
}

impl ParamError {
    /// `field` is at fault for `reason`.
    pub fn new(field: &str, reason: impl Into<String>) -> Self {
        Self { field: field.to_owned(), reason: reason.into() }
    }

    /// The same, for a field within the message `outer`.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), ..self }
    }
}

/// Named parameters as a file holds them.
pub trait Source {
    /// The text of the field, `None` where the file does not name it.
    fn text(&self, field: &str) -> Option<&str>;
}

impl Source for &[(&str, &str)] {
    fn text(&self, field: &str) -> Option<&str> {
        self.iter().find(|(name, _)| *name == field).map(|(_, text)| *text)
    }
}

/// A required whole number.
///
/// # Errors
/// [`ParamError`] when it is missing or no whole number.
pub fn number(source: &dyn Source, field: &str) -> Result<u64, ParamError> {
    let text = source.text(field).ok_or_else(|| missing(field))?;
    text.parse().map_err(|_| ParamError::new(field, format!("{field} is a whole number from 0, not `{text}`")))
}

/// A required length of time.
///
/// # Errors
/// [`ParamError`] when it is missing or of no known form.
pub fn duration(source: &dyn Source, field: &str) -> Result<Micros, ParamError> {
    let text = source.text(field).ok_or_else(|| missing(field))?;
    parse_duration(text).map_err(|reason| ParamError::new(field, format!("{field}: {reason}")))
}

/// A switch, off where the file does not name it.
///
/// # Errors
/// [`ParamError`] for anything but `true` and `false`.
pub fn flag(source: &dyn Source, field: &str) -> Result<bool, ParamError> {
    match source.text(field) {
        None => Ok(false),
        Some(text) => {
            text.parse().map_err(|_| ParamError::new(field, format!("{field} is true or false, not `{text}`")))
        }
    }
}

/// A length of time, `None` where the file does not name it.
///
/// # Errors
/// [`ParamError`] when it is of no known form.
pub fn optional_duration(source: &dyn Source, field: &str) -> Result<Option<Micros>, ParamError> {
    source.text(field).map(|_| duration(source, field)).transpose()
}

/// A required number, whole or not.
///
/// # Errors
/// [`ParamError`] when it is missing or no finite number.
pub fn real(source: &dyn Source, field: &str) -> Result<f64, ParamError> {
    let text = source.text(field).ok_or_else(|| missing(field))?;
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| ParamError::new(field, format!("{field} is a number, not `{text}`")))
}

/// A message's length of time where it has one, to the microsecond.
///
/// # Errors
/// [`ParamError`] when it is negative, malformed, or finer than a microsecond.
pub fn optional_message_duration(
    field: &str,
    value: Option<&prost_types::Duration>,
) -> Result<Option<Micros>, ParamError> {
    value.map(|value| message_duration(field, Some(value))).transpose()
}

/// A message's length of time, to the microsecond.
///
/// # Errors
/// [`ParamError`] when it is absent, negative, malformed, or finer than a microsecond.
pub fn message_duration(field: &str, value: Option<&prost_types::Duration>) -> Result<Micros, ParamError> {
    let value = value.ok_or_else(|| missing(field))?;
    from_message(value)
        .ok_or_else(|| ParamError::new(field, format!("{field} is a length of time in whole microseconds")))
}

/// A message's length of time; `None` when it is negative, malformed, finer than a microsecond or beyond 2^53 µs.
pub fn from_message(value: &prost_types::Duration) -> Option<Micros> {
    let well_formed = value.seconds >= 0 && (0..1_000_000_000).contains(&value.nanos) && value.nanos % 1_000 == 0;
    let micros = value.seconds.checked_mul(1_000_000)?.checked_add(i64::from(value.nanos / 1_000))?;
    (well_formed && micros <= 1 << 53).then_some(micros)
}

/// Checks a count or size, 1 to 2^32.
///
/// # Errors
/// [`ParamError`] when it is outside.
pub fn check_count(field: &str, value: u64) -> Result<(), ParamError> {
    if (1..=MAX_COUNT).contains(&value) {
        return Ok(());
    }
    Err(ParamError::new(field, format!("{field} is 1 to 2^32, not {value}")))
}

/// Checks a period, 1 µs to the bound.
///
/// # Errors
/// [`ParamError`] when it is outside.
pub fn check_period(field: &str, value: Micros, bounds: &Bounds) -> Result<(), ParamError> {
    let most = bounds.max_period.min(MAX_PERIOD);
    if (1..=most).contains(&value) {
        return Ok(());
    }
    let (value, most) = (format_duration(value), format_duration(most));
    Err(ParamError::new(field, format!("{field} is 1us to {most} (the setting max_period, at most 366d), not {value}")))
}

/// Checks the longest wait that a limit grants, 0 to a day.
///
/// # Errors
/// [`ParamError`] when it is longer.
pub fn check_max_wait(value: Option<Micros>) -> Result<(), ParamError> {
    match value {
        Some(wait) if !(0..=MAX_WAIT).contains(&wait) => {
            Err(ParamError::new("max_wait", format!("max_wait is 0 to 1d, not {}", format_duration(wait))))
        }
        _ => Ok(()),
    }
}

/// The longest wait that both the limit and its caller accept, of those who say; `None`: neither does.
pub fn patience(limit: Option<Micros>, caller: Option<Micros>) -> Option<Micros> {
    match (limit, caller) {
        (Some(limit), Some(caller)) => Some(limit.min(caller)),
        (limit, caller) => limit.or(caller),
    }
}

/// Checks that `units` at `count` per `period` stay exact in doubles: they span at most 2^50 µs, and units times the
/// denominator of the interval stays below 2^53.
///
/// # Errors
/// [`ParamError`] names `field`, where the number of units comes from.
pub fn check_span(field: &str, units: u64, rate: super::span::Rate) -> Result<(), ParamError> {
    if rate.span(units).ceil() > MAX_DEPTH {
        return Err(ParamError::new(
            field,
            format!("{field} would take over 2^50 us (35 years) to come back at this rate"),
        ));
    }
    if u128::from(units) * rate.den() as u128 >= MAX_PARTS {
        return Err(ParamError::new(
            field,
            format!("{field} is too large for exact arithmetic at this count and period"),
        ));
    }
    Ok(())
}

/// A count-like parameter divided by `factor`: rounded up, and at least `least`. Too large a result saturates, beyond
/// every bound.
pub fn scale_count(value: u64, factor: f64, least: u64) -> u64 {
    ((value as f64 / factor).ceil() as u64).max(least)
}

fn missing(field: &str) -> ParamError {
    ParamError::new(field, format!("{field} is missing"))
}
