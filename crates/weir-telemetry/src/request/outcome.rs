//! How checks end.

/// The label of what has no name of its own here: unknown domains, limits of requests, what is beyond the bound.
pub const OTHER: &str = "other";

/// How a check went.
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
    /// Every outcome; the position of each is its number.
    pub const ALL: [Self; 3] = [Self::Allowed, Self::Limited, Self::Error];

    /// Its label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Limited => "limited",
            Self::Error => "error",
        }
    }
}
