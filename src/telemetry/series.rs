//! The series of a domain and of a limit.

use metrics::Counter;
use weir_core::domain::OnStoreFailure;
use weir_telemetry::{Registry, request::Outcome};

use super::names::{CHECKS, DECISIONS, DEGRADED, NEAR_LIMIT};

/// How a check came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A unary gRPC call.
    Grpc,
    /// A gRPC call with many checks.
    GrpcBatch,
    /// A message of a gRPC stream.
    GrpcStream,
    /// A call of Envoy's.
    Envoy,
    /// A check as JSON over HTTP.
    Http,
    /// Many of them in one request.
    HttpBatch,
}

impl Transport {
    /// Every transport; the position of each is its number.
    pub const ALL: [Self; 6] =
        [Self::Grpc, Self::GrpcBatch, Self::GrpcStream, Self::Envoy, Self::Http, Self::HttpBatch];

    /// Its label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::GrpcBatch => "grpc_batch",
            Self::GrpcStream => "grpc_stream",
            Self::Envoy => "envoy",
            Self::Http => "http",
            Self::HttpBatch => "http_batch",
        }
    }
}

/// What is counted of a limit: its counters, by their positions.
pub(super) const ALLOWED: usize = 0;
pub(super) const LIMITED: usize = 1;
pub(super) const SHADOW_LIMITED: usize = 2;
pub(super) const NEAR: usize = 3;
const OF_LIMIT: usize = 4;

/// How many counters a domain has.
pub(super) const OF_DOMAIN: usize = Transport::ALL.len() * Outcome::ALL.len() + OnStoreFailure::ALL.len();

/// The counter of a limit for such a decision.
pub(super) fn decided(allowed: bool, shadow: bool) -> usize {
    match (allowed, shadow) {
        (true, _) => ALLOWED,
        (false, false) => LIMITED,
        (false, true) => SHADOW_LIMITED,
    }
}

pub(super) fn of_limit(registry: &Registry, domain: &str, limit: &str) -> [Counter; OF_LIMIT] {
    let decisions =
        |outcome| registry.counter(DECISIONS, &[("domain", domain), ("limit", limit), ("outcome", outcome)]);
    let near = registry.counter(NEAR_LIMIT, &[("domain", domain), ("limit", limit)]);
    [decisions("allowed"), decisions("limited"), decisions("shadow_limited"), near]
}

pub(super) fn of_domain(registry: &Registry, domain: &str) -> impl Iterator<Item = Counter> {
    let each = Transport::ALL.into_iter().flat_map(|transport| Outcome::ALL.map(|outcome| (transport, outcome)));
    let checks = each.map(move |(transport, outcome)| {
        registry.counter(CHECKS, &[("domain", domain), ("transport", transport.name()), ("outcome", outcome.name())])
    });
    let rules = OnStoreFailure::ALL.into_iter();
    checks.chain(rules.map(move |rule| registry.counter(DEGRADED, &[("domain", domain), ("mode", rule.name())])))
}

/// What one limit counts, where that is not known when a policy is compiled.
#[derive(Clone)]
pub struct LimitMeter([Counter; OF_LIMIT]);

impl LimitMeter {
    pub(super) fn new(registry: &Registry, domain: &str, limit: &str) -> Self {
        Self(of_limit(registry, domain, limit))
    }

    /// Counts one decision of the limit.
    pub fn count(&self, allowed: bool, shadow: bool, near: bool) {
        self.0[decided(allowed, shadow)].increment(1);
        if allowed && near {
            self.0[NEAR].increment(1);
        }
    }
}
