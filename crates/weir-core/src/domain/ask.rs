//! The input of a decision, and its bounds.

use std::ops::RangeInclusive;

use thiserror::Error;

use super::time::{DAY, Micros};

/// Most units that a request may ask for or give back.
pub const MAX_COST: i64 = 1 << 32;
/// Most limits on one path.
pub const MAX_LEVELS: usize = 16;
/// Longest wait that a caller may accept.
pub const MAX_WAIT: Micros = DAY;
/// How long a reservation may last.
pub const RESERVATION_TTL: RangeInclusive<Micros> = 10_000..=DAY;

/// The input of one limit's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The moment of the decision.
    pub now: Micros,
    /// Units asked for: 0 peeks, negative refunds; within ±[`MAX_COST`].
    pub cost: i64,
    /// The longest wait that the caller accepts; `None`: it did not say.
    pub max_wait: Option<Micros>,
    /// Where the windows of this key begin, in `0..period`; 0 unless the limit asks for a phase of its own.
    pub phase: Micros,
}

/// Whether a refusal by one limit keeps the others from being charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charge {
    /// A refused request charges nothing.
    #[default]
    AllOrNothing,
    /// Every limit that lets the request pass charges it.
    Independent,
    /// Where limits refuse a request, only these are charged, as far as they charge what is denied. Only in Envoy's domains.
    OverLimitOnly,
}

impl Charge {
    /// Every way; those of Envoy's domains.
    pub const ALL: [Self; 3] = [Self::AllOrNothing, Self::Independent, Self::OverLimitOnly];

    /// Its name in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllOrNothing => "all_or_nothing",
            Self::Independent => "independent",
            Self::OverLimitOnly => "over_limit_only",
        }
    }
}

/// How to decide while the shared store is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// This replica's own memory, with the same limits.
    #[default]
    Local,
    /// Everything passes.
    Allow,
    /// Nothing passes.
    Deny,
    /// The caller gets an error.
    Error,
}

impl OnStoreFailure {
    /// Every rule; the position of each is its number.
    pub const ALL: [Self; 4] = [Self::Local, Self::Allow, Self::Deny, Self::Error];

    /// Its name in policies and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}

/// Why a request cannot be asked.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum AskError {
    /// The cost is beyond ±[`MAX_COST`].
    #[error("a cost is -2^32 to 2^32, not {0}")]
    Cost(i64),
    /// The wait is not within 0 to [`MAX_WAIT`].
    #[error("a max_wait is 0 to 1 day")]
    MaxWait,
    /// The factor is negative, infinite or no number.
    #[error("a factor is a number from 0, not {0}")]
    Factor(f64),
}

impl AskError {
    /// The request's field at fault.
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
/// [`AskError`] names the part that is out of bounds.
pub fn check_bounds(cost: i64, max_wait: Option<Micros>, factor: f64) -> Result<(), AskError> {
    if !(-MAX_COST..=MAX_COST).contains(&cost) {
        return Err(AskError::Cost(cost));
    }
    if max_wait.is_some_and(|wait| !(0..=MAX_WAIT).contains(&wait)) {
        return Err(AskError::MaxWait);
    }
    if !factor.is_finite() || factor < 0.0 {
        return Err(AskError::Factor(factor));
    }
    Ok(())
}
