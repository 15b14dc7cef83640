//! Outcomes of checks.

/// The label of everything without a name in metrics: unknown domains, limits of requests, series beyond the maximum.
pub const OTHER: &str = "other";

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Allowed,
    /// It was refused.
    Limited,
    /// It could not be decided.
    Error,
}

impl Outcome {
    /// Every outcome, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Allowed, Self::Limited, Self::Error];

    /// Returns its label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Limited => "limited",
            Self::Error => "error",
        }
    }
}
