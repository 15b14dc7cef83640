//! The call `ShouldRateLimit`.

use std::time::Instant;

use tracing::debug;
use weir_core::domain::key::{MAX_SEGMENT_BYTES, domain_label};
use weir_store::Store;
use weir_telemetry::request::{self, OTHER, Outcome};

use super::{encode, pb::RateLimitResponse, settings::EnvoySettings, wire::RateLimitRequest};
use crate::{
    limiter::{CheckError, DescriptorAnswers, DescriptorsRequest, Invalid},
    telemetry::CallKind,
    transport::{check_service::CheckService, status::Rejected},
};

/// The call over one limiter.
pub struct Rls<S> {
    service: CheckService<S>,
    settings: EnvoySettings,
}

impl<S: Store> Rls<S> {
    /// Returns the call over the limiter of `service`.
    pub fn new(service: CheckService<S>, settings: EnvoySettings) -> Self {
        Self { service, settings }
    }

    /// Answers one request, and counts and times it.
    ///
    /// # Errors
    /// [`Rejected`] for errors in Envoy's configuration (no domain, no descriptor, too many of them), while no policy
    /// has been received, and if the store fails and the domain's `on_store_failure` is `error`.
    pub async fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Rejected> {
        let since = Instant::now();
        let answer = self.decide(request).await;
        self.service.timed(CallKind::Envoy, since);
        answer
    }

    /// Counts a request that cannot be decoded.
    pub fn unreadable(&self) {
        self.service.failed(&self.service.limiter().policy(), None, CallKind::Envoy);
    }

    async fn decide(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Rejected> {
        let handle = self.service.limiter().policy();
        let domain = handle.policy.domain(&request.query.domain);
        let failed = |rejected: Rejected| {
            self.service.failed(&handle, domain, CallKind::Envoy);
            rejected
        };
        check(&request.query).map_err(|error| failed(error.into()))?;
        if domain.is_none() && handle.policy.is_awaited() {
            return Err(failed(CheckError::NoPolicy.into()));
        }
        if domain.is_none() {
            debug!(
                request_id = request::request_id(),
                trace_id = request::trace_id(),
                domain = request.query.domain.chars().take(MAX_SEGMENT_BYTES).collect::<String>(),
                "no policy defines the domain"
            );
        }
        let resolved = request.query.resolve(&handle.policy).map_err(|error| failed(error.into()))?;
        let pending = self.service.limiter().check_descriptors(&handle, &resolved);
        let statuses = self.service.outcome(&handle, pending).await.map_err(failed)?;
        let answer = encode::response(request, &statuses, &self.settings);
        let outcome = if statuses.allowed() { Outcome::Allowed } else { Outcome::Limited };
        handle.counters.check(domain.map(|domain| domain.index), CallKind::Envoy, outcome);
        if self.service.is_observed {
            let (name, limit) = (domain.map(|domain| domain_label(&domain.name)), deciding(&statuses, outcome));
            request::summarize(|summary| summary.check(name, limit, outcome, statuses.degraded));
        }
        Ok(answer)
    }
}

/// Returns the limit that decided: the limit of the first descriptor that is over, else of the only one that has a
/// limit.
fn deciding<'s>(statuses: &'s DescriptorAnswers<'_>, outcome: Outcome) -> Option<&'s str> {
    let mut found = statuses.statuses.iter().filter(|status| match outcome {
        Outcome::Limited => status.over,
        _ => status.summary.binding.is_some(),
    });
    let first = found.next()?;
    if outcome != Outcome::Limited && found.next().is_some() {
        return None;
    }
    let limit = first.levels.get(first.summary.binding?)?.limit;
    Some(if limit.is_override() { OTHER } else { &limit.name })
}

/// Rejects a request without a domain or without descriptors.
fn check(query: &DescriptorsRequest) -> Result<(), Invalid> {
    if query.domain.is_empty() {
        return Err(Invalid::field_error("domain", "rate limit domain must not be empty"));
    }
    if query.descriptors.is_empty() {
        return Err(Invalid::field_error("descriptors", "rate limit descriptor list must not be empty"));
    }
    Ok(())
}
