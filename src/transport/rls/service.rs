//! The call.

use std::time::Instant;

use super::{encode, pb::RateLimitResponse, settings::EnvoySettings};
use crate::{
    limiter::{
        Invalid,
        descriptors::{DescriptorsRequest, MAX_DESCRIPTORS},
    },
    store::Store,
    telemetry::{Outcome, Transport},
    transport::{observe::Checks, status::Refused},
};

/// The service's full name, as health checks ask for it.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The name under which envoyproxy/ratelimit answers health checks.
pub const HEALTH_NAME: &str = "ratelimit";

/// The RPC over one limiter.
pub struct Rls<S> {
    checks: Checks<S>,
    settings: EnvoySettings,
}

impl<S> Clone for Rls<S> {
    fn clone(&self) -> Self {
        Self { checks: self.checks.clone(), settings: self.settings.clone() }
    }
}

impl<S: Store> Rls<S> {
    /// Answers by the limiter of `checks`.
    pub fn new(checks: Checks<S>, settings: EnvoySettings) -> Self {
        Self { checks, settings }
    }

    /// Answers one request and counts how it went.
    ///
    /// # Errors
    /// [`Refused`] for what Envoy's configuration must not do (no domain, no descriptor, too many), and where the store has
    /// no answer and the domain says `error`.
    pub async fn answer(&self, request: &DescriptorsRequest) -> Result<RateLimitResponse, Refused> {
        let since = Instant::now();
        let answer = self.decide(request).await;
        let limiter = self.checks.limiter();
        limiter.metrics().check_duration(Transport::Envoy).record(since.elapsed());
        answer
    }

    async fn decide(&self, request: &DescriptorsRequest) -> Result<RateLimitResponse, Refused> {
        let snapshot = self.checks.limiter().snapshot();
        let count = |outcome| snapshot.meters.check(&request.domain, Transport::Envoy, outcome);
        let invalid = |field: &str, message: String| {
            count(Outcome::Error);
            Err(Refused::from(Invalid::field_error(field, message)))
        };
        if request.domain.is_empty() {
            return invalid("domain", "rate limit domain must not be empty".to_owned());
        }
        if request.descriptors.is_empty() {
            return invalid("descriptors", "rate limit descriptor list must not be empty".to_owned());
        }
        if request.descriptors.len() > MAX_DESCRIPTORS {
            return invalid("descriptors", format!("at most {MAX_DESCRIPTORS} descriptors"));
        }
        let resolved = request.resolve(&snapshot.policy);
        let statuses = self.checks.limiter().check_descriptors(&snapshot, &resolved).await.inspect_err(|_| {
            count(Outcome::Error);
        })?;
        let answer = encode::response(request, &statuses, &self.settings);
        count(if statuses.allowed(self.settings.quota_mode) { Outcome::Allowed } else { Outcome::Limited });
        Ok(answer)
    }
}
