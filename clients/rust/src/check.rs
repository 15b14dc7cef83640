use std::{sync::Arc, time::Duration};

use weir_core::domain::request::MAX_COST;

use crate::{
    call::MAX_DEADLINE,
    limit::duration,
    proto::{Charge, CheckRequest, Limit},
};

/// The fallback when the service does not decide: it is unreachable, too slow or overloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The call fails.
    #[default]
    Error,
    /// Fail open: the answer is an allowed [`Decision`](crate::Decision) of
    /// [`Source::Fallback`](crate::Source::Fallback).
    Allow,
    /// Fail closed: the answer is a refused decision of [`Source::Fallback`](crate::Source::Fallback).
    Deny,
}

/// A check: may `cost` units pass under a key? A key alone converts into one. Clones are cheap and share the key: keep
/// a frequent check and pass it to each call by reference.
///
/// ```
/// use weir_client::Check;
///
/// let check = Check::new(["user", "alex", "trade"]).domain("api").cost(2);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a check does nothing until a client sends it"]
pub struct Check {
    pub(crate) request: Arc<CheckRequest>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) on_failure: Option<OnFailure>,
    pub(crate) lease: Option<bool>,
}

impl<K: IntoIterator<Item: Into<String>>> From<K> for Check {
    fn from(key: K) -> Self {
        Self::new(key)
    }
}

impl From<&Check> for Check {
    fn from(check: &Check) -> Self {
        check.clone()
    }
}

impl Check {
    /// Checks one unit of this key, by the policy of the default domain. The key's segments start at the root.
    pub fn new(key: impl IntoIterator<Item: Into<String>>) -> Self {
        let request = CheckRequest {
            key: key.into_iter().map(Into::into).collect(),
            // By default callers do not wait: limits that shape traffic then refuse instead of answering with a wait.
            max_wait: duration(Duration::ZERO),
            summary_only: true,
            ..CheckRequest::default()
        };
        Self { request: Arc::new(request), deadline: None, on_failure: None, lease: None }
    }

    /// Sets the domain whose policy decides. Default: the default domain.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.edit().domain = domain.into();
        self
    }

    /// Sets the cost. 0 is a preview, and a negative cost is a refund. Default: 1.
    pub fn cost(mut self, units: i64) -> Self {
        self.edit().cost = Some(units);
        self
    }

    /// Sets limits that replace the policy's: any of the algorithms in [`proto`](crate::proto).
    pub fn limits(mut self, limits: impl IntoIterator<Item: Into<Limit>>) -> Self {
        self.edit().limit_spec.get_or_insert_default().limits = limits.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the units that a refusal charges to its own [`limits`](Self::limits). Default: none.
    pub fn charge(mut self, charge: Charge) -> Self {
        self.edit().limit_spec.get_or_insert_default().set_charge(charge);
        self
    }

    /// Sets the longest acceptable [`wait`](crate::Decision::wait) of limits that shape traffic. Default: none.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.edit().max_wait = duration(wait);
        self
    }

    /// Divides the counts of all limits on the path: 0.5 allows twice as much. Default: 1.
    pub fn factor(mut self, factor: f64) -> Self {
        self.edit().factor = Some(factor);
        self
    }

    /// Makes the check a dry run: decided as usual, but not charged.
    pub fn dry_run(mut self) -> Self {
        self.edit().dry_run = true;
        self
    }

    /// Sets the ID by which a repeated check is charged once. By default the client draws one for each check that
    /// charges, if retries are enabled.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.edit().request_id = id.into();
        self
    }

    /// Requests every limit on the path in [`Decision::levels`](crate::Decision::levels).
    pub fn levels(mut self) -> Self {
        self.edit().summary_only = false;
        self
    }

    /// Sets the time limit of the call, with its retries: at most a day; with 0 it fails, and is not sent. Default: the
    /// client's.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline.min(MAX_DEADLINE));
        self
    }

    /// Sets the fallback when the service does not decide. Default: the client's.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = Some(on_failure);
        self
    }

    /// Sets whether a lease may decide the check, if the policy allows that. Default: the client's.
    pub fn lease(mut self, lease: bool) -> Self {
        self.lease = Some(lease);
        self
    }

    fn edit(&mut self) -> &mut CheckRequest {
        Arc::make_mut(&mut self.request)
    }

    pub(crate) fn into_request(self) -> CheckRequest {
        Arc::unwrap_or_clone(self.request)
    }

    pub(crate) fn cost_or_default(&self) -> i64 {
        self.request.cost.unwrap_or(1)
    }

    /// Whether a lease can decide this check.
    pub(crate) fn is_leasable(&self) -> bool {
        let CheckRequest { limit_spec, factor, dry_run, request_id, max_wait, .. } = &*self.request;
        let is_own = limit_spec.is_some() || factor.is_some() || *dry_run || !request_id.is_empty();
        !is_own
            && (1..=MAX_COST).contains(&self.cost_or_default())
            && max_wait.is_none_or(|wait| (wait.seconds, wait.nanos) == (0, 0))
    }

    /// Adds an ID if needed, so that the check may be retried.
    pub(crate) fn repeatable(mut self) -> Self {
        if charges(&self.request) && self.request.request_id.is_empty() {
            self.edit().request_id = format!("{:032x}", rand::random::<u128>());
        }
        self
    }
}

/// Whether the check changes counts, so that without an ID it must not be executed twice.
pub(crate) fn charges(check: &CheckRequest) -> bool {
    check.cost != Some(0) && !check.dry_run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_decides_costs_that_the_service_takes() {
        for (cost, is_leasable) in [(-1, false), (0, false), (1, true), (MAX_COST, true), (MAX_COST + 1, false)] {
            assert_eq!(Check::new(["api"]).cost(cost).is_leasable(), is_leasable, "{cost}");
        }
    }
}
