//! The difference in the treatment of one request by two policies, A and B.

use serde::{Serialize, Serializer};
use weir_core::domain::Micros;

use crate::limiter::{Answer, CheckError, LevelAnswer};

/// The treatment of a request by a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum Treatment<'a> {
    Allowed { wait_us: Micros, limit: Option<&'a str> },
    Refused { retry_after_us: Option<Micros>, limit: &'a str },
    Invalid { error: String },
}

impl<'a> Treatment<'a> {
    /// # Errors
    /// The store failed.
    pub(super) fn from<'b>(answer: &'b Result<Answer<'a>, CheckError>) -> Result<Self, &'b CheckError> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error @ CheckError::Store(_)) => return Err(error),
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
pub(super) enum DifferenceKind {
    RefusedOnlyByA,
    RefusedOnlyByB,
    InvalidOnlyUnderA,
    InvalidOnlyUnderB,
    WaitsLongerUnderA,
    WaitsLongerUnderB,
}

impl DifferenceKind {
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
    pub(super) fn between(a: &Treatment<'_>, b: &Treatment<'_>) -> Option<Self> {
        match (a, b) {
            (Treatment::Invalid { .. }, Treatment::Invalid { .. })
            | (Treatment::Refused { .. }, Treatment::Refused { .. }) => None,
            (Treatment::Invalid { .. }, _) => Some(Self::InvalidOnlyUnderA),
            (_, Treatment::Invalid { .. }) => Some(Self::InvalidOnlyUnderB),
            (Treatment::Refused { .. }, Treatment::Allowed { .. }) => Some(Self::RefusedOnlyByA),
            (Treatment::Allowed { .. }, Treatment::Refused { .. }) => Some(Self::RefusedOnlyByB),
            (Treatment::Allowed { wait_us: a, .. }, Treatment::Allowed { wait_us: b, .. }) if a == b => None,
            (Treatment::Allowed { wait_us: a, .. }, Treatment::Allowed { wait_us: b, .. }) if a > b => {
                Some(Self::WaitsLongerUnderA)
            }
            (Treatment::Allowed { .. }, Treatment::Allowed { .. }) => Some(Self::WaitsLongerUnderB),
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
pub(super) struct Counts([u64; DifferenceKind::ALL.len()]);

impl Counts {
    /// Counts one request.
    pub(super) fn add(&mut self, kind: DifferenceKind) {
        self.0[kind as usize] += 1;
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
        let some = DifferenceKind::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0);
        some.map(|(kind, count)| format!("{count} {}", kind.text())).collect::<Vec<_>>().join(", ")
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(DifferenceKind::ALL.into_iter().zip(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::domain::{Decision, aggregate};
    use weir_policy::{Domain, Rules};

    const POLICY: &str = "schema: { a: { limits: [{ fixed_window: { count: 9, period: 1s }, name: x }, { fixed_window: { \
                          count: 9, period: 2s }, name: y }, { fixed_window: { count: 9, period: 3s }, name: z, shadow: \
                          true }] } }";

    fn treatment<'a>(domain: &'a Domain, decisions: [Decision; 3]) -> Treatment<'a> {
        let level = |(limit, decision)| LevelAnswer { limit, depth: 1, shadow: limit.shadow, decision, window: 1 };
        let levels: smallvec::SmallVec<_> = domain.limits().zip(decisions).map(level).collect();
        let summary = aggregate(levels.iter().map(|level: &LevelAnswer<'_>| (&level.decision, level.shadow)));
        Treatment::from(&Ok(Answer { summary, levels, ..Answer::default() })).unwrap()
    }

    #[test]
    fn the_deciding_limit_is_reported() {
        let policy = weir_policy::parse(POLICY, &Rules::default()).unwrap();
        let domain = policy.domain("").unwrap();
        let pass = |remaining| Decision::pass(9, remaining, 0);
        let wait = |remaining, wait| Decision { wait, ..pass(remaining) };
        let refuse = |retry| Decision::refuse(9, 0, Some(retry), 9);
        let allowed = |wait_us, limit| Treatment::Allowed { wait_us, limit: Some(limit) };
        // The limit with the least remaining is reported, but for a wait the one with the longest wait; never a shadow
        // limit.
        assert_eq!(treatment(domain, [pass(1), pass(2), wait(0, 9)]), allowed(0, "x"));
        assert_eq!(treatment(domain, [pass(1), wait(2, 7), wait(0, 9)]), allowed(7, "y"));
        assert_eq!(treatment(domain, [wait(1, 8), wait(2, 7), pass(3)]), allowed(8, "x"));
        let refused = Treatment::Refused { retry_after_us: Some(5), limit: "y" };
        assert_eq!(treatment(domain, [refuse(4), refuse(5), refuse(6)]), refused);
    }

    #[test]
    fn each_pair_of_outcomes_has_one_kind_of_difference() {
        let allowed = |wait_us| Treatment::Allowed { wait_us, limit: None };
        let refused = |retry_after_us| Treatment::Refused { retry_after_us, limit: "a" };
        let invalid = |error: &str| Treatment::Invalid { error: error.to_owned() };
        for (a, b, a_to_b, b_to_a) in [
            (allowed(0), refused(None), Some(DifferenceKind::RefusedOnlyByB), Some(DifferenceKind::RefusedOnlyByA)),
            (allowed(7), refused(Some(1)), Some(DifferenceKind::RefusedOnlyByB), Some(DifferenceKind::RefusedOnlyByA)),
            (allowed(7), allowed(7), None, None),
            (allowed(7), allowed(8), Some(DifferenceKind::WaitsLongerUnderB), Some(DifferenceKind::WaitsLongerUnderA)),
            (refused(None), refused(Some(1)), None, None),
            (
                invalid("x"),
                allowed(0),
                Some(DifferenceKind::InvalidOnlyUnderA),
                Some(DifferenceKind::InvalidOnlyUnderB),
            ),
            (
                invalid("x"),
                refused(None),
                Some(DifferenceKind::InvalidOnlyUnderA),
                Some(DifferenceKind::InvalidOnlyUnderB),
            ),
            (invalid("x"), invalid("y"), None, None),
        ] {
            assert_eq!(
                (DifferenceKind::between(&a, &b), DifferenceKind::between(&b, &a)),
                (a_to_b, b_to_a),
                "{a:?} {b:?}"
            );
        }
    }
}
