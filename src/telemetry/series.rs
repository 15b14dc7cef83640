//! The series of a domain and of a limit.

use std::{iter, ops::Range};

use metrics::Counter;
use weir_core::domain::{Decision, OnStoreFailure, key::domain_label};
use weir_policy::overrides::CHANGES;
use weir_store::Effect;
use weir_telemetry::{Metric, Registry, request::Outcome};

use super::names::{
    ABANDONED, CHARGED, CHECKS, CLIENT_LEASES, CLIENT_LEASES_BURNT, CLIENT_LEASES_GRANTED, CLIENT_LEASES_RETURNED,
    CLIENT_LEASES_SPENT, DECISIONS, DEGRADED, DRY_RUNS, NEAR_CACHE_REFUSALS, NEAR_LIMIT, OVERRIDDEN, REPEATED,
    RESERVATION_UNITS, RESERVATIONS, UNMATCHED,
};

/// Defines an enum whose variants are the values of a label. Each variant is named once.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $label:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of])* $variant,)+
        }

        impl $name {
            /// All variants, each at the index of its discriminant.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$variant),+];

            /// Returns the label.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }
        }
    };
}

labels! {
    /// The transport of a check.
    Transport {
        /// A unary gRPC call.
        Grpc = "grpc",
        /// A gRPC call with many checks.
        GrpcBatch = "grpc_batch",
        /// A gRPC call with checks that are decided together.
        GrpcAll = "grpc_all",
        /// A message of a gRPC stream.
        GrpcStream = "grpc_stream",
        /// A message of a gRPC stream about a lease.
        GrpcLease = "grpc_lease",
        /// A call from Envoy.
        Envoy = "envoy",
        /// A check as JSON over HTTP.
        Http = "http",
        /// Many checks in one HTTP request.
        HttpBatch = "http_batch",
        /// Checks that are decided together, in one HTTP request.
        HttpAll = "http_all",
    }
}

labels! {
    /// The outcome of a request about a client's lease.
    LeaseCall {
        /// Settled, and granted the units that were available.
        Served = "ok",
        /// The terms differ from those that the client knew.
        Changed = "changed",
        /// The key cannot be leased.
        NotLeasable = "not_leasable",
        /// The store did not answer.
        Lost = "lost",
    }
}

labels! {
    /// The outcome of a call about a reservation.
    ReservationCall {
        /// Reserved.
        Reserved = "reserved",
        /// Refused by a limit.
        Refused = "refused",
        /// Settled by its actual cost.
        Committed = "committed",
        /// Given back.
        Cancelled = "cancelled",
        /// Held for another time.
        Extended = "extended",
        /// Not found: never made, ended, or another client's.
        Unknown = "unknown",
    }
}

labels! {
    /// The kinds of units of reservations.
    ReservationUnits {
        /// Reserved.
        Reserved = "reserved",
        /// Not used, and given back.
        Refunded = "refunded",
        /// Used beyond what was reserved.
        Overage = "overage",
    }
}

/// The indexes of the counters of a limit.
pub(super) const ALLOWED: usize = 0;
pub(super) const LIMITED: usize = 1;
pub(super) const SHADOW_LIMITED: usize = 2;
pub(super) const NEAR: usize = 3;
pub(super) const CHARGED_UNITS: usize = 4;
const NEAR_CACHE: usize = 5;
pub(super) const OF_LIMIT: usize = 6;

/// The indexes of the counters of a domain: checks by transport and outcome, degraded checks by rule, unmatched checks,
/// dry runs, repeated requests, abandoned checks, overridden checks by change, calls about reservations, their units,
/// requests about leases, and their units: granted, spent, returned, burnt.
pub(super) const DEGRADED_FROM: usize = Transport::ALL.len() * Outcome::ALL.len();
pub(super) const UNMATCHED_AT: usize = DEGRADED_FROM + OnStoreFailure::ALL.len();
pub(super) const DRY_RUNS_AT: usize = UNMATCHED_AT + 1;
pub(super) const REPEATED_AT: usize = DRY_RUNS_AT + 1;
pub(super) const ABANDONED_AT: usize = REPEATED_AT + 1;
pub(super) const OVERRIDDEN_FROM: usize = ABANDONED_AT + 1;
pub(super) const RESERVATIONS_FROM: usize = OVERRIDDEN_FROM + CHANGES.len();
pub(super) const RESERVATION_UNITS_FROM: usize = RESERVATIONS_FROM + ReservationCall::ALL.len();
pub(super) const LEASES_FROM: usize = RESERVATION_UNITS_FROM + ReservationUnits::ALL.len();
pub(super) const LEASE_UNITS_FROM: usize = LEASES_FROM + LeaseCall::ALL.len();
const LEASE_UNITS: [Metric; 4] =
    [CLIENT_LEASES_GRANTED, CLIENT_LEASES_SPENT, CLIENT_LEASES_RETURNED, CLIENT_LEASES_BURNT];
/// The number of counters of a domain.
pub(super) const OF_DOMAIN: usize = LEASE_UNITS_FROM + LEASE_UNITS.len();

/// The counters that are registered with any first count of the domain. The others, which many domains never use, are
/// registered with the first count of their kind.
const USUAL: Range<usize> = DEGRADED_FROM..RESERVATIONS_FROM;

/// Returns the indexes of the counters of a limit that a decision increments: its outcome, passes that leave less than
/// a fifth, and refusals from the near cache.
#[inline]
pub(super) fn counters_of(decision: &Decision, shadow: bool, effect: Effect) -> impl Iterator<Item = usize> {
    let outcome = match (decision.allowed, shadow) {
        (true, _) => ALLOWED,
        (false, false) => LIMITED,
        (false, true) => SHADOW_LIMITED,
    };
    let is_near = decision.allowed && decision.remaining.saturating_mul(5) < decision.limit;
    iter::once(outcome).chain(is_near.then_some(NEAR)).chain(effect.is_near.then_some(NEAR_CACHE))
}

pub(super) fn of_limit(registry: &Registry, domain: &str, limit: &str) -> [Counter; OF_LIMIT] {
    let domain = domain_label(domain);
    let decisions =
        |outcome| registry.counter(DECISIONS, &[("domain", domain), ("limit", limit), ("outcome", outcome)]);
    let near = registry.counter(NEAR_LIMIT, &[("domain", domain), ("limit", limit)]);
    let charged = registry.counter(CHARGED, &[("domain", domain), ("limit", limit)]);
    let near_cache = registry.counter(NEAR_CACHE_REFUSALS, &[("domain", domain), ("limit", limit)]);
    [decisions("allowed"), decisions("limited"), decisions("shadow_limited"), near, charged, near_cache]
}

/// Returns the counters of a domain that are registered with the first count at `counted`, with their indexes.
pub(super) fn of_domain(registry: &Registry, domain: &str, counted: usize) -> impl Iterator<Item = (usize, Counter)> {
    let kind = match counted {
        check if check < DEGRADED_FROM => {
            let first = check - check % Outcome::ALL.len();
            first..first + Outcome::ALL.len()
        }
        usual if usual < RESERVATIONS_FROM => USUAL,
        reservation if reservation < LEASES_FROM => RESERVATIONS_FROM..LEASES_FROM,
        _ => LEASES_FROM..OF_DOMAIN,
    };
    let begun = series_of_domain().enumerate().filter(move |(at, _)| USUAL.contains(at) || kind.contains(at));
    begun.map(move |(at, (metric, labels))| {
        let labels: Vec<_> = iter::once(("domain", domain_label(domain))).chain(labels).collect();
        (at, registry.counter(metric, &labels))
    })
}

/// Returns the metrics of a domain's series, and their labels besides the domain.
fn series_of_domain() -> impl Iterator<Item = (Metric, Vec<(&'static str, &'static str)>)> {
    let each = Transport::ALL.into_iter().flat_map(|transport| Outcome::ALL.map(|outcome| (transport, outcome)));
    let checks =
        each.map(|(transport, outcome)| (CHECKS, vec![("transport", transport.name()), ("outcome", outcome.name())]));
    let degraded = OnStoreFailure::ALL.into_iter().map(|rule| (DEGRADED, vec![("mode", rule.name())]));
    let apart = [UNMATCHED, DRY_RUNS, REPEATED, ABANDONED].map(|metric| (metric, vec![]));
    let overridden = CHANGES.into_iter().map(|change| (OVERRIDDEN, vec![("change", change)]));
    let calls = ReservationCall::ALL.into_iter().map(|call| (RESERVATIONS, vec![("outcome", call.name())]));
    let units = ReservationUnits::ALL.into_iter().map(|kind| (RESERVATION_UNITS, vec![("kind", kind.name())]));
    let leases = LeaseCall::ALL.into_iter().map(|call| (CLIENT_LEASES, vec![("result", call.name())]));
    let leased = LEASE_UNITS.map(|metric| (metric, vec![]));
    checks.chain(degraded).chain(apart).chain(overridden).chain(calls).chain(units).chain(leases).chain(leased)
}

/// The counters of a limit that is not known when a policy is compiled.
#[derive(Clone)]
pub struct LimitCounters([Counter; OF_LIMIT]);

impl LimitCounters {
    pub(super) fn new(registry: &Registry, domain: &str, limit: &str) -> Self {
        Self(of_limit(registry, domain, limit))
    }

    /// Counts one decision of the limit, and its charge.
    pub fn count(&self, decision: &Decision, shadow: bool, effect: Effect) {
        counters_of(decision, shadow, effect).for_each(|counter| self.0[counter].increment(1));
        self.0[CHARGED_UNITS].increment(effect.charged);
    }
}
