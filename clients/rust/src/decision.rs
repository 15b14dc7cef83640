use std::time::Duration;

use crate::{
    Error, OnFailure,
    proto::{CheckAllResponse, CheckResponse, LevelResult},
};

/// Who decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The service.
    Service,
    /// This client, by units that it holds ([`Builder::lease`](crate::Builder::lease)).
    Lease,
    /// The client's [`OnFailure`], since there was this error.
    Fallback(Error),
}

/// Whether a request may pass. Numbers and times are the summary over all limits on the key's path, each by itself; those of one
/// limit are in [`levels`](Self::levels). A decision of [`Source::Lease`] has none of them, but `retry_after`, and in `remaining` the units
/// still held.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// Every limit allows it.
    pub allowed: bool,
    /// The lowest limit; 0: nothing is limited.
    pub limit: u64,
    /// The largest cost that would still pass.
    pub remaining: u64,
    /// Refused: the time after which the same request passes; `None`: no wait helps.
    pub retry_after: Option<Duration>,
    /// The time until every limit is full again.
    pub reset_after: Duration,
    /// Allowed, to be started this much later, up to [`Check::max_wait`](crate::Check::max_wait).
    pub wait: Duration,
    /// Refused, and no wait helps.
    pub never: bool,
    /// Decided without the shared store, by the policy's `on_store_failure`.
    pub degraded: bool,
    /// Decided from leased units, of a replica or of this client.
    pub leased: bool,
    /// The answer to an earlier call of the same `request_id`.
    pub repeated_request: bool,
    /// Nothing is left: the time to the next unit.
    pub next_after: Option<Duration>,
    /// The id of the operator's override or ban that acted on a limit.
    pub override_id: Option<String>,
    /// Refused by a ban: what its operator says.
    pub ban_reason: Option<String>,
    /// Every limit on the path, root first; empty without [`Check::levels`](crate::Check::levels).
    pub levels: Vec<Level>,
    /// Who decided.
    pub source: Source,
    pub(crate) binding: Option<usize>,
}

impl Decision {
    /// The level that decided: of a refusal the one with the longest retry, else the one with the least left.
    pub fn binding(&self) -> Option<&Level> {
        self.levels.get(self.binding?)
    }

    /// A decision by what a lease holds, of which so many units are left. It knows no limits.
    pub(crate) fn leased(allowed: bool, remaining: u64, retry_after: Option<Duration>) -> Self {
        let source = Source::Lease;
        Self { allowed, remaining, retry_after, leased: true, source, ..CheckResponse::default().into() }
    }

    /// The decision in place of an outage; other errors stay what they are.
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

/// The decision of one limit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Level {
    /// The limit's name.
    pub name: String,
    /// The segments of the key that it covers.
    pub depth: u32,
    /// It never refuses.
    pub shadow: bool,
    /// Whether it allows the check.
    pub allowed: bool,
    /// The most units at once.
    pub limit: u64,
    /// The largest cost that it would still allow.
    pub remaining: u64,
    /// Refused: the time after which it allows the check.
    pub retry_after: Option<Duration>,
    /// The time until it is full again.
    pub reset_after: Duration,
    /// Allowed, to be started this much later.
    pub wait: Duration,
    /// Refused, and no wait helps.
    pub never: bool,
    /// Nothing is left: the time to the next unit.
    pub next_after: Option<Duration>,
}

/// The answer to checks that pass together or not at all.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Together {
    /// All pass, and are charged. Else none is.
    pub allowed: bool,
    /// What the limits of each check say, in order; empty for a fallback.
    pub decisions: Vec<Decision>,
    /// Who decided.
    pub source: Source,
}

impl Together {
    /// Refused: the time after which all pass.
    pub fn retry_after(&self) -> Option<Duration> {
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
