//! The counters of one policy, made when it is compiled, so that a check only counts.

use std::collections::HashMap;

use metrics::Counter;

use super::metrics::{CHECKS, DECISIONS, DEGRADED, Metrics, NEAR_LIMIT};
use crate::domain::OnStoreFailure;

/// The label of what has no name of its own here: unknown domains, limits of requests, what is beyond the bound.
pub(super) const OTHER: &str = "other";

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
    const ALL: [Self; 3] = [Self::Allowed, Self::Limited, Self::Error];

    fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Limited => "limited",
            Self::Error => "error",
        }
    }
}

/// What one limit counts.
#[derive(Clone)]
pub struct LimitMeter {
    allowed: Counter,
    limited: Counter,
    shadow_limited: Counter,
    near: Counter,
}

impl LimitMeter {
    pub(super) fn new(metrics: &Metrics, domain: &str, limit: &str) -> Self {
        let decisions =
            |outcome| metrics.counter(DECISIONS, &[("domain", domain), ("limit", limit), ("outcome", outcome)]);
        Self {
            allowed: decisions("allowed"),
            limited: decisions("limited"),
            shadow_limited: decisions("shadow_limited"),
            near: metrics.counter(NEAR_LIMIT, &[("domain", domain), ("limit", limit)]),
        }
    }

    /// Counts one decision of the limit.
    pub fn count(&self, allowed: bool, shadow: bool, near: bool) {
        match (allowed, shadow) {
            (true, _) => self.allowed.increment(1),
            (false, false) => self.limited.increment(1),
            (false, true) => self.shadow_limited.increment(1),
        }
        if allowed && near {
            self.near.increment(1);
        }
    }
}

/// What one domain counts.
struct DomainMeter {
    checks: [[Counter; Outcome::ALL.len()]; Transport::ALL.len()],
    degraded: [Counter; OnStoreFailure::ALL.len()],
}

impl DomainMeter {
    fn new(metrics: &Metrics, domain: &str) -> Self {
        let checks = |transport: Transport, outcome: Outcome| {
            metrics.counter(CHECKS, &[("domain", domain), ("transport", transport.name()), ("outcome", outcome.name())])
        };
        let degraded = |rule: OnStoreFailure| metrics.counter(DEGRADED, &[("domain", domain), ("mode", rule.name())]);
        Self {
            checks: Transport::ALL.map(|transport| Outcome::ALL.map(|outcome| checks(transport, outcome))),
            degraded: OnStoreFailure::ALL.map(degraded),
        }
    }
}

/// The counters of one policy.
pub struct Meters {
    default_domain: Option<DomainMeter>,
    domains: HashMap<Box<str>, DomainMeter, foldhash::fast::RandomState>,
    other_domain: DomainMeter,
    limits: Vec<LimitMeter>,
    other_limit: LimitMeter,
}

impl Meters {
    /// Meters for these domains, and for these limits, each given as domain and name, in the order of their numbers.
    pub fn new<'a>(
        metrics: &Metrics,
        domains: impl IntoIterator<Item = &'a str>,
        limits: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let other_limit = LimitMeter::new(metrics, OTHER, OTHER);
        let domains = domains.into_iter().filter(|domain| metrics.admits(domain, None));
        let mut domains: HashMap<_, _, _> =
            domains.map(|domain| (domain.into(), DomainMeter::new(metrics, domain))).collect();
        let limits = limits.into_iter().map(|(domain, limit)| match metrics.admits(domain, Some(limit)) {
            true => LimitMeter::new(metrics, domain, limit),
            false => other_limit.clone(),
        });
        Self {
            default_domain: domains.remove(""),
            domains,
            other_domain: DomainMeter::new(metrics, OTHER),
            limits: limits.collect(),
            other_limit,
        }
    }

    /// Counts one check.
    pub fn check(&self, domain: &str, transport: Transport, outcome: Outcome) {
        self.domain(domain).checks[transport as usize][outcome as usize].increment(1);
    }

    /// Counts one check that was decided without the shared store.
    pub fn degraded(&self, domain: &str, rule: OnStoreFailure) {
        self.domain(domain).degraded[rule as usize].increment(1);
    }

    fn domain(&self, domain: &str) -> &DomainMeter {
        // Apart, as in a policy: an empty name is slow to look up.
        let meter = if domain.is_empty() { self.default_domain.as_ref() } else { self.domains.get(domain) };
        meter.unwrap_or(&self.other_domain)
    }

    /// Counts one check that names no domain to be sure of.
    pub fn unknown_domain(&self, transport: Transport, outcome: Outcome) {
        self.other_domain.checks[transport as usize][outcome as usize].increment(1);
    }

    /// The meter of the limit of this number; without one, that of all other limits.
    pub fn limit(&self, index: Option<u32>) -> &LimitMeter {
        index.and_then(|index| self.limits.get(index as usize)).unwrap_or(&self.other_limit)
    }
}
