//! Parameters as files have them, and the bounds that they share.

use thiserror::Error;

use super::{fields, kinds::Period, span::Rate};
use crate::domain::{Micros, time::DAY};

/// Largest count or size.
pub const MAX_COUNT: u64 = 1 << 32;
/// Longest period of any limit.
pub const MAX_PERIOD: Micros = 366 * DAY;
/// Maximum time for which a state counts units for larger limits than the one that settles them.
pub(crate) const MAX_KEPT_FOR_OTHERS: Micros = 31 * DAY;
/// Longest time that a whole limit may span, so that a moment plus it stays exact in a double.
pub(crate) const MAX_DEPTH: Micros = 1 << 50;
/// Bound on units times the denominator of the rate, for the same reason.
const MAX_PARTS: u128 = 1 << 53;

/// Why units of a limit that charges refused requests cannot be held.
pub(crate) const CHARGES_DENIED: &str = "it charges refused requests, which a holder does not report";
/// Why units of a limit that lets requests wait cannot be held.
pub(crate) const SHAPES: &str = "some requests pass with a wait, and only the store knows which ones";

/// The service's own bounds on limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest period in files and requests; at most [`MAX_PERIOD`].
    pub max_period: Micros,
}

impl Default for Bounds {
    /// 31 days.
    fn default() -> Self {
        Self { max_period: 31 * DAY }
    }
}

/// An invalid parameter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct ParamError {
    /// The invalid parameter, as named in files and messages.
    pub field: String,
    /// A sentence that names the parameter and the problem.
    pub reason: String,
}

impl ParamError {
    /// Creates an error about `field`.
    pub fn new(field: &str, reason: impl Into<String>) -> Self {
        Self { field: field.to_owned(), reason: reason.into() }
    }

    /// Returns the error for a field within the message `outer`.
    #[cfg(feature = "proto")]
    #[must_use]
    pub(crate) fn within(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), ..self }
    }
}

/// Parameters of a limit, as a file names and writes them. The first of a name applies.
pub type FileParams<'a> = [(&'a str, &'a str)];

/// Checks a period, 1 µs to the bound.
///
/// # Errors
/// [`ParamError`] when it is outside.
pub fn check_period(field: &str, value: Micros, bounds: &Bounds) -> Result<(), ParamError> {
    fields::check::<Period>(field, value, bounds)
}

/// Returns the longest wait that both the limit and the client accept, of those that set one; `None` if neither does.
pub(crate) fn accepted_wait(limit: Option<Micros>, client: Option<Micros>) -> Option<Micros> {
    match (limit, client) {
        (Some(limit), Some(client)) => Some(limit.min(client)),
        (limit, client) => limit.or(client),
    }
}

/// Checks that `units` at `count` per `period` stay exact in doubles: they span at most 2^50 µs, and units times the
/// denominator of the interval stays below 2^53.
///
/// # Errors
/// [`ParamError`] names `field`, where the number of units comes from.
pub(crate) fn check_span(field: &str, units: u64, rate: Rate) -> Result<(), ParamError> {
    if rate.span(units).ceil() > MAX_DEPTH {
        return Err(ParamError::new(
            field,
            format!("{field} would take over 2^50 us (35 years) to refill at this rate"),
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
