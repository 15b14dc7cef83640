use std::time::Duration;

use crate::{
    Error, OnFailure,
    proto::{CheckAllResponse, CheckResponse, LevelResult},
};

/// The source of a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The service.
    Service,
    /// The client itself, from units that it holds ([`Builder::lease`](crate::Builder::lease)).
    Lease,
    /// The client's [`OnFailure`], because of this error.
    Fallback(Error),
}

/// The answer to a check: allowed or refused. Numbers and times each summarize all limits on the key's path; the
/// numbers of one limit are in [`levels`](Self::levels). A decision of [`Source::Lease`] has only `retry_after`, and in
/// `remaining` the units still held.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// Whether every limit allows the check.
    pub allowed: bool,
    /// The lowest limit; 0: nothing is limited.
    pub limit: u64,
    /// The largest cost that would still pass.
    pub remaining: u64,
    /// Time after which the refused request passes; `None` if it is allowed or waiting does not help.
    pub retry_after: Option<Duration>,
    /// Time until every limit is full again.
    pub reset_after: Duration,
    /// Delay before an allowed request starts, at most [`Check::max_wait`](crate::Check::max_wait).
    pub wait: Duration,
    /// Whether the request is refused and waiting does not help.
    pub never: bool,
    /// Whether the policy's `on_store_failure` decided, without the shared store.
    pub degraded: bool,
    /// Whether units leased by a replica or by this client decided.
    pub leased: bool,
    /// Whether this is the answer to an earlier call with the same `request_id`.
    pub repeated_request: bool,
    /// Time to the next unit when no unit is left.
    pub next_after: Option<Duration>,
    /// The ID of the operator's override or ban that acted on a limit.
    pub override_id: Option<String>,
    /// The reason that the operator gave for the ban that refused the request.
    pub ban_reason: Option<String>,
    /// Every limit on the path, root first; empty without [`Check::levels`](crate::Check::levels).
    pub levels: Vec<Level>,
    /// The source of the decision.
    pub source: Source,
    pub(crate) binding: Option<usize>,
}

impl Decision {
    /// Returns the binding level: of a refusal the one with the longest retry, else the one with the fewest units left.
    pub fn binding(&self) -> Option<&Level> {
        self.levels.get(self.binding?)
    }

    /// Makes a decision of a lease with `remaining` units left. The limits are unknown.
    pub(crate) fn leased(allowed: bool, remaining: u64, retry_after: Option<Duration>) -> Self {
        let source = Source::Lease;
        Self { allowed, remaining, retry_after, leased: true, source, ..CheckResponse::default().into() }
    }

    /// Applies `on_failure` if the error is an outage; other errors are returned unchanged.
    pub(crate) fn fallback(on_failure: OnFailure, error: Error) -> Result<Self, Error> {
        let allowed = match on_failure {
            OnFailure::Allow => true,
            OnFailure::Deny => false,
            OnFailure::Error => return Err(error),
        };
        if !error.is_outage() {
            return Err(error);
        }
        Ok(Self { allowed, source: Source::Fallback(error), ..CheckResponse::default().into() })
    }
}

/// One limit's part of a decision.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Level {
    /// The limit's name.
    pub name: String,
    /// Number of leading segments of the key that the limit counts.
    pub depth: u32,
    /// Whether the limit is in shadow mode and never refuses.
    pub shadow: bool,
    /// Whether the limit allows the check.
    pub allowed: bool,
    /// The most units that can pass in one burst.
    pub limit: u64,
    /// The largest cost that the limit would still allow.
    pub remaining: u64,
    /// Time after which the limit allows the refused check.
    pub retry_after: Option<Duration>,
    /// Time until the limit is full again.
    pub reset_after: Duration,
    /// Delay before an allowed check starts.
    pub wait: Duration,
    /// Whether the limit refuses and waiting does not help.
    pub never: bool,
    /// Time to the next unit when no unit is left.
    pub next_after: Option<Duration>,
}

/// The answer to [`Client::check_all`](crate::Client::check_all): all checks pass or none.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Together {
    /// Whether all checks pass and are charged. Otherwise none is charged.
    pub allowed: bool,
    /// The decision of each check's limits, in order; empty for a fallback.
    pub decisions: Vec<Decision>,
    /// The source of the decision.
    pub source: Source,
}

impl Together {
    /// Returns the time after which all checks pass; `None` if they are allowed or waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.decisions.iter().any(|decision| decision.never) {
            return None;
        }
        self.decisions.iter().filter_map(|decision| decision.retry_after).max()
    }
}

fn time(duration: prost_types::Duration) -> Duration {
    duration.try_into().unwrap_or_default()
}

impl From<CheckResponse> for Decision {
    fn from(response: CheckResponse) -> Self {
        Self {
            allowed: response.allowed,
            limit: response.limit,
            remaining: response.remaining,
            retry_after: response.retry_after.map(time),
            reset_after: response.reset_after.map(time).unwrap_or_default(),
            wait: response.wait.map(time).unwrap_or_default(),
            never: response.never,
            degraded: response.degraded,
            leased: response.leased,
            repeated_request: response.repeated_request,
            next_after: response.next_after.map(time),
            override_id: Some(response.r#override).filter(|id| !id.is_empty()),
            ban_reason: Some(response.ban_reason).filter(|reason| !reason.is_empty()),
            binding: response.binding.and_then(|index| usize::try_from(index).ok()),
            levels: response.levels.into_iter().map(Level::from).collect(),
            source: Source::Service,
        }
    }
}

impl From<LevelResult> for Level {
    fn from(level: LevelResult) -> Self {
        Self {
            name: level.name,
            depth: level.depth,
            shadow: level.shadow,
            allowed: level.allowed,
            limit: level.limit,
            remaining: level.remaining,
            retry_after: level.retry_after.map(time),
            reset_after: level.reset_after.map(time).unwrap_or_default(),
            wait: level.wait.map(time).unwrap_or_default(),
            never: level.never,
            next_after: level.next_after.map(time),
        }
    }
}

impl From<CheckAllResponse> for Together {
    fn from(response: CheckAllResponse) -> Self {
        let decisions = response.results.into_iter().map(Decision::from).collect();
        Self { allowed: response.allowed, decisions, source: Source::Service }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_pass_together_after_the_longest_retry_unless_one_never_passes() {
        let refused = |seconds: u64, never| {
            let retry_after = Some(Duration::from_secs(seconds)).filter(|_| seconds > 0);
            Decision { retry_after, never, ..CheckResponse::default().into() }
        };
        let retry_after = |decisions| Together { allowed: false, decisions, source: Source::Service }.retry_after();
        assert_eq!(retry_after(vec![refused(1, false), refused(3, false)]), Some(Duration::from_secs(3)));
        assert_eq!(retry_after(vec![refused(1, false), refused(0, true)]), None);
        assert_eq!(retry_after(vec![]), None);
    }
}
