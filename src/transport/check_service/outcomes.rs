//! Counts the outcomes of checks, and reports them to the request context.

use weir_core::domain::key::domain_label;
use weir_policy::Domain;
use weir_store::Store;
use weir_telemetry::request::{self, OTHER, Outcome};

use super::CheckService;
use crate::{
    limiter::{Answer, PolicyHandle, Request},
    telemetry::CallKind,
};

/// An answer, and whether the request may pass, which is the same for all checks that are decided together.
pub(super) type Concluded<'c, 'a> = Option<(&'c Answer<'a>, bool)>;

#[inline]
pub(super) fn by_itself<'c, 'a>(answer: Option<&'c Answer<'a>>) -> Concluded<'c, 'a> {
    answer.map(|answer| (answer, answer.summary.decision.allowed))
}

impl<S: Store> CheckService<S> {
    /// Counts a request that failed, by its domain if known, and reports it.
    pub fn failed(&self, handle: &PolicyHandle, domain: Option<&Domain>, transport: CallKind) {
        handle.counters.check(domain.map(|domain| domain.index), transport, Outcome::Error);
        if self.is_observed {
            let name = domain.map(|domain| domain_label(&domain.name));
            request::summarize(|summary| summary.check(name, None, Outcome::Error, false));
        }
    }

    /// Reports the domain of a request that is not a check.
    pub(super) fn report_domain(&self, handle: &PolicyHandle, request: &Request<'_>) {
        if self.is_observed {
            let domain = handle.policy.domain(&request.domain).map_or(OTHER, |domain| domain_label(&domain.name));
            request::summarize(|summary| summary.domain = Some(domain.into()));
        }
    }
}

/// Counts a request by its answer, and reports it if `is_observed`.
#[inline]
pub(super) fn count(
    handle: &PolicyHandle,
    transport: CallKind,
    request: &Request<'_>,
    answer: Concluded<'_, '_>,
    is_observed: bool,
) {
    if is_observed {
        summarize(handle, request, answer);
    }
    let (domain, outcome) = match answer {
        Some((answer, true)) => (answer.domain, Outcome::Allowed),
        Some((answer, false)) => (answer.domain, Outcome::Limited),
        None => (handle.policy.domain(&request.domain).map(|domain| domain.index), Outcome::Error),
    };
    if request.dry_run {
        handle.counters.dry_run(domain);
    } else {
        handle.counters.check(domain, transport, outcome);
    }
}

/// Reports a check to the request context, by names of the policy: nothing that the client sent is included.
#[inline(never)]
fn summarize(handle: &PolicyHandle, request: &Request<'_>, answer: Concluded<'_, '_>) {
    let domain = handle.policy.domain(&request.domain).map(|domain| domain_label(&domain.name));
    let (outcome, degraded) = match answer {
        None => (Outcome::Error, false),
        Some((answer, true)) => (Outcome::Allowed, answer.degraded),
        Some((answer, false)) => (Outcome::Limited, answer.degraded),
    };
    let binding = answer.and_then(|(answer, _)| answer.levels.get(answer.summary.binding?));
    let limit = binding.map(|level| if request.spec.is_some() { OTHER } else { &*level.limit.name });
    request::summarize(|summary| summary.check(domain, limit, outcome, degraded));
}
