//! The input of a decision, and its bounds.

use std::ops::RangeInclusive;

use thiserror::Error;

use super::time::{DAY, Micros};

/// Maximum units that a request may charge or refund.
pub const MAX_COST: i64 = 1 << 32;
/// Maximum number of limits on one path.
pub const MAX_LEVELS: usize = 16;
/// Longest wait that a client may accept.
pub const MAX_WAIT: Micros = DAY;
/// Bounds of a reservation's TTL.
pub const RESERVATION_TTL: RangeInclusive<Micros> = 10_000..=DAY;

/// The input of one limit's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepInput {
    /// Time of the decision.
    pub now: Micros,
    /// Units to charge: 0 for a preview, negative for a refund; within ±[`MAX_COST`].
    pub cost: i64,
    /// The longest wait that the client accepts; `None` if it gave none.
    pub max_wait: Option<Micros>,
    /// Offset of the windows of this key, in `0..period`; 0 unless the limit spreads its windows by key.
    pub phase: Micros,
}

/// The policy's `charge`: the limits that a refused request charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charge {
    /// A refused request charges nothing.
    #[default]
    AllOrNothing,
    /// Each limit that allows the request charges it.
    Independent,
    /// If limits refuse a request, only these are charged, and only if they charge denied requests. Only in Envoy's
    /// domains.
    OverLimitOnly,
}

impl Charge {
    /// All variants; Envoy's domains may use each of them.
    pub const ALL: [Self; 3] = [Self::AllOrNothing, Self::Independent, Self::OverLimitOnly];

    /// Returns the name in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllOrNothing => "all_or_nothing",
            Self::Independent => "independent",
            Self::OverLimitOnly => "over_limit_only",
        }
    }
}

/// The rule for decisions while the shared store is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Decide in this replica's own memory, with the same limits.
    #[default]
    Local,
    /// Allow every request.
    Allow,
    /// Refuse every request.
    Deny,
    /// Return an error to the client.
    Error,
}

impl OnStoreFailure {
    /// All variants; the position of each is its number.
    pub const ALL: [Self; 4] = [Self::Local, Self::Allow, Self::Deny, Self::Error];

    /// Returns the name in policies and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}

/// A part of a request that is out of bounds.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RequestError {
    /// The cost is beyond ±[`MAX_COST`].
    #[error("a cost must be -2^32 to 2^32, not {0}")]
    Cost(i64),
    /// The wait is not within 0 to [`MAX_WAIT`].
    #[error("a max_wait must be 0 to 1 day")]
    MaxWait,
    /// The factor is negative, infinite or not a number.
    #[error("a factor must be a number from 0, not {0}")]
    Factor(f64),
}

impl RequestError {
    /// Returns the invalid field of the request.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Cost(_) => "cost",
            Self::MaxWait => "max_wait",
            Self::Factor(_) => "factor",
        }
    }
}

/// Checks the parts of a request that concern all its limits.
///
/// # Errors
/// [`RequestError`] names the part that is out of bounds.
pub fn check_bounds(cost: i64, max_wait: Option<Micros>, factor: f64) -> Result<(), RequestError> {
    if !(-MAX_COST..=MAX_COST).contains(&cost) {
        return Err(RequestError::Cost(cost));
    }
    if max_wait.is_some_and(|wait| !(0..=MAX_WAIT).contains(&wait)) {
        return Err(RequestError::MaxWait);
    }
    if !factor.is_finite() || factor < 0.0 {
        return Err(RequestError::Factor(factor));
    }
    Ok(())
}
