//! The difference in the treatment of one request by two policies, A and B.

use serde::{Serialize, Serializer};
use weir_core::domain::Micros;
use weir_store::StoreError;

use crate::limiter::{Answer, CheckError, LevelAnswer};

/// The treatment of a request by a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum Treated<'a> {
    Allowed { wait_us: Micros, limit: Option<&'a str> },
    Refused { retry_after_us: Option<Micros>, limit: &'a str },
    Invalid { error: String },
}

impl<'a> Treated<'a> {
    /// # Errors
    /// The store failed.
    pub(super) fn from<'b>(answer: &'b Result<Answer<'a>, CheckError>) -> Result<Self, &'b StoreError> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(CheckError::Store(error)) => return Err(error),
            Err(error) => return Ok(Self::Invalid { error: error.to_string() }),
        };
        let name = |level: &LevelAnswer<'a>| &*level.limit.name;
        let binding = answer.summary.binding.and_then(|index| answer.levels.get(index)).map(name);
        if !answer.summary.decision.allowed {
            let retry_after_us = answer.summary.decision.retry_after;
            return Ok(Self::Refused { retry_after_us, limit: binding.unwrap_or_default() });
        }
        // The wait is that of the limit with the longest wait, which need not be the binding one.
        let wait_us = answer.summary.decision.wait;
        let waited_for = |level: &&LevelAnswer<'a>| wait_us > 0 && !level.shadow && level.decision.wait == wait_us;
        Ok(Self::Allowed { wait_us, limit: answer.levels.iter().find(waited_for).map(name).or(binding) })
    }

    /// Returns the limit that decided.
    pub(super) fn limit(&self) -> Option<&'a str> {
        match self {
            Self::Allowed { limit, .. } => *limit,
            Self::Refused { limit, .. } => Some(limit),
            Self::Invalid { .. } => None,
        }
    }
}

/// One of two policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
}

/// The difference between two treatments of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    RefusedOnlyByA,
    RefusedOnlyByB,
    InvalidOnlyUnderA,
    InvalidOnlyUnderB,
    WaitsLongerUnderA,
    WaitsLongerUnderB,
}

impl How {
    /// All variants, each at the index of its discriminant.
    const ALL: [Self; 6] = [
        Self::RefusedOnlyByA,
        Self::RefusedOnlyByB,
        Self::InvalidOnlyUnderA,
        Self::InvalidOnlyUnderB,
        Self::WaitsLongerUnderA,
        Self::WaitsLongerUnderB,
    ];

    /// Returns the difference between two treatments; `None`: there is none. The retry time of a refused request makes
    /// none.
    pub(super) fn between(a: &Treated<'_>, b: &Treated<'_>) -> Option<Self> {
        match (a, b) {
            (Treated::Invalid { .. }, Treated::Invalid { .. }) | (Treated::Refused { .. }, Treated::Refused { .. }) => {
                None
            }
            (Treated::Invalid { .. }, _) => Some(Self::InvalidOnlyUnderA),
            (_, Treated::Invalid { .. }) => Some(Self::InvalidOnlyUnderB),
            (Treated::Refused { .. }, Treated::Allowed { .. }) => Some(Self::RefusedOnlyByA),
            (Treated::Allowed { .. }, Treated::Refused { .. }) => Some(Self::RefusedOnlyByB),
            (Treated::Allowed { wait_us: a, .. }, Treated::Allowed { wait_us: b, .. }) if a == b => None,
            (Treated::Allowed { wait_us: a, .. }, Treated::Allowed { wait_us: b, .. }) if a > b => {
                Some(Self::WaitsLongerUnderA)
            }
            (Treated::Allowed { .. }, Treated::Allowed { .. }) => Some(Self::WaitsLongerUnderB),
        }
    }

    /// Returns the policy whose limit made the difference; `None`: no limit did.
    pub(super) fn decided_by(self) -> Option<Side> {
        match self {
            Self::RefusedOnlyByA | Self::WaitsLongerUnderA => Some(Side::A),
            Self::RefusedOnlyByB | Self::WaitsLongerUnderB => Some(Side::B),
            Self::InvalidOnlyUnderA | Self::InvalidOnlyUnderB => None,
        }
    }

    /// Formats the difference as text.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::RefusedOnlyByA => "refused only by A",
            Self::RefusedOnlyByB => "refused only by B",
            Self::InvalidOnlyUnderA => "not valid only under A",
            Self::InvalidOnlyUnderB => "not valid only under B",
            Self::WaitsLongerUnderA => "waiting longer under A",
            Self::WaitsLongerUnderB => "waiting longer under B",
        }
    }
}

/// Numbers of requests that were treated differently, by kind of difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts([u64; How::ALL.len()]);

impl Counts {
    /// Counts one request.
    pub(super) fn add(&mut self, how: How) {
        self.0[how as usize] += 1;
    }

    /// Returns the total.
    pub(super) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the number of kinds of difference that occurred.
    pub(super) fn kinds(&self) -> usize {
        self.0.iter().filter(|count| **count > 0).count()
    }

    /// Formats the counts that are not zero.
    pub(super) fn text(&self) -> String {
        let some = How::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0);
        some.map(|(how, count)| format!("{count} {}", how.text())).collect::<Vec<_>>().join(", ")
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(How::ALL.into_iter().zip(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::{
        algorithm::Bounds,
        domain::{Decision, aggregate},
    };
    use weir_policy::{Domain, file};
    use weir_settings::document;

    const POLICY: &str = "schema: { a: { limits: [{ fixed_window: { count: 9, period: 1s }, name: x }, { fixed_window: { \
                          count: 9, period: 2s }, name: y }, { fixed_window: { count: 9, period: 3s }, name: z, shadow: \
                          true }] } }";

    fn treated<'a>(domain: &'a Domain, decisions: [Decision; 3]) -> Treated<'a> {
        let level = |(limit, decision)| LevelAnswer { limit, depth: 1, shadow: limit.shadow, decision, window: 1 };
        let levels: smallvec::SmallVec<_> = domain.limits().zip(decisions).map(level).collect();
        let summary = aggregate(levels.iter().map(|level: &LevelAnswer<'_>| (&level.decision, level.shadow)));
        Treated::from(&Ok(Answer { summary, levels, ..Answer::default() })).unwrap()
    }

    #[test]
    fn the_deciding_limit_is_reported() {
        let document = document::parse(POLICY).unwrap().unwrap();
        let domain = &file::read(&document, &Bounds::default()).unwrap();
        let pass = |remaining| Decision::pass(9, remaining, 0);
        let wait = |remaining, wait| Decision { wait, ..pass(remaining) };
        let refuse = |retry| Decision::refuse(9, 0, Some(retry), 9);
        let allowed = |wait_us, limit| Treated::Allowed { wait_us, limit: Some(limit) };
        // The limit with the least remaining is reported, but for a wait the one with the longest wait; never a shadow
        // limit.
        assert_eq!(treated(domain, [pass(1), pass(2), wait(0, 9)]), allowed(0, "x"));
        assert_eq!(treated(domain, [pass(1), wait(2, 7), wait(0, 9)]), allowed(7, "y"));
        assert_eq!(treated(domain, [wait(1, 8), wait(2, 7), pass(3)]), allowed(8, "x"));
        let refused = Treated::Refused { retry_after_us: Some(5), limit: "y" };
        assert_eq!(treated(domain, [refuse(4), refuse(5), refuse(6)]), refused);
    }

    #[test]
    fn each_pair_of_outcomes_has_one_kind_of_difference() {
        let allowed = |wait_us| Treated::Allowed { wait_us, limit: None };
        let refused = |retry_after_us| Treated::Refused { retry_after_us, limit: "a" };
        let invalid = |error: &str| Treated::Invalid { error: error.to_owned() };
        for (a, b, a_to_b, b_to_a) in [
            (allowed(0), refused(None), Some(How::RefusedOnlyByB), Some(How::RefusedOnlyByA)),
            (allowed(7), refused(Some(1)), Some(How::RefusedOnlyByB), Some(How::RefusedOnlyByA)),
            (allowed(7), allowed(7), None, None),
            (allowed(7), allowed(8), Some(How::WaitsLongerUnderB), Some(How::WaitsLongerUnderA)),
            (refused(None), refused(Some(1)), None, None),
            (invalid("x"), allowed(0), Some(How::InvalidOnlyUnderA), Some(How::InvalidOnlyUnderB)),
            (invalid("x"), refused(None), Some(How::InvalidOnlyUnderA), Some(How::InvalidOnlyUnderB)),
            (invalid("x"), invalid("y"), None, None),
        ] {
            assert_eq!((How::between(&a, &b), How::between(&b, &a)), (a_to_b, b_to_a), "{a:?} {b:?}");
        }
    }
}
