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
    /// The kind of the call that a check came in: the label `transport`.
    CallKind {
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
        /// Refunded.
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
        /// Not used, and refunded.
        Refunded = "refunded",
        /// Used beyond the reserved units.
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

/// The series that the first count of a series registers: its kind's and `Domain`'s. Many domains never use the other
/// kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Registered with any first count of the domain.
    Domain,
    /// The checks of one transport, by its index.
    Checks(usize),
    Reservations,
    Leases,
}

/// The kind, the metric and, except for the domain, the labels of a series.
type Series = (Kind, Metric, Vec<(&'static str, &'static str)>);

/// Defines the groups of a domain's series in the order of their counters: the number of series, and each by its index
/// in the group.
macro_rules! domain_series {
    ($($group:ident[$len:expr] = $series:expr;)+) => {
        /// A group of a domain's series.
        #[derive(Clone, Copy)]
        pub(super) enum Group {
            $($group,)+
        }

        const GROUPS: [(usize, fn(usize) -> Series); [$(stringify!($group)),+].len()] = [$(($len, $series)),+];
    };
}

domain_series! {
    Checks[CallKind::ALL.len() * Outcome::ALL.len()] = |at| {
        let (transport, outcome) = (at / Outcome::ALL.len(), at % Outcome::ALL.len());
        let labels = vec![("transport", CallKind::ALL[transport].name()), ("outcome", Outcome::ALL[outcome].name())];
        (Kind::Checks(transport), CHECKS, labels)
    };
    Degraded[OnStoreFailure::ALL.len()] =
        |rule| (Kind::Domain, DEGRADED, vec![("mode", OnStoreFailure::ALL[rule].name())]);
    Unmatched[1] = |_| (Kind::Domain, UNMATCHED, vec![]);
    DryRuns[1] = |_| (Kind::Domain, DRY_RUNS, vec![]);
    Repeated[1] = |_| (Kind::Domain, REPEATED, vec![]);
    Abandoned[1] = |_| (Kind::Domain, ABANDONED, vec![]);
    Overridden[CHANGES.len()] = |change| (Kind::Domain, OVERRIDDEN, vec![("change", CHANGES[change])]);
    Reservations[ReservationCall::ALL.len()] =
        |call| (Kind::Reservations, RESERVATIONS, vec![("outcome", ReservationCall::ALL[call].name())]);
    ReservationUnits[ReservationUnits::ALL.len()] =
        |kind| (Kind::Reservations, RESERVATION_UNITS, vec![("kind", ReservationUnits::ALL[kind].name())]);
    Leases[LeaseCall::ALL.len()] = |call| (Kind::Leases, CLIENT_LEASES, vec![("result", LeaseCall::ALL[call].name())]);
    LeaseUnitsGranted[1] = |_| (Kind::Leases, CLIENT_LEASES_GRANTED, vec![]);
    LeaseUnitsSpent[1] = |_| (Kind::Leases, CLIENT_LEASES_SPENT, vec![]);
    LeaseUnitsReturned[1] = |_| (Kind::Leases, CLIENT_LEASES_RETURNED, vec![]);
    LeaseUnitsBurnt[1] = |_| (Kind::Leases, CLIENT_LEASES_BURNT, vec![]);
}

/// The index of the first counter of each group, and the number of counters of a domain.
const OFFSETS: [usize; GROUPS.len() + 1] = {
    let (mut offsets, mut group) = ([0; GROUPS.len() + 1], 0);
    while group < GROUPS.len() {
        offsets[group + 1] = offsets[group] + GROUPS[group].0;
        group += 1;
    }
    offsets
};
pub(super) const OF_DOMAIN: usize = OFFSETS[GROUPS.len()];

impl Group {
    /// Returns the indexes of the group's counters.
    pub(super) fn counters(self) -> Range<usize> {
        OFFSETS[self as usize]..OFFSETS[self as usize + 1]
    }

    /// Returns the index of the group's first counter.
    #[inline]
    pub(super) fn offset(self) -> usize {
        OFFSETS[self as usize]
    }
}

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
pub(super) fn of_domain(registry: &Registry, domain: &str, counted: usize) -> Vec<(usize, Counter)> {
    let all: Vec<_> = GROUPS.iter().flat_map(|(len, series)| (0..*len).map(series)).collect();
    let counted = all[counted].0;
    let registered = all.into_iter().enumerate().filter(|(_, (kind, ..))| [Kind::Domain, counted].contains(kind));
    let counters = registered.map(|(at, (_, metric, labels))| {
        let labels: Vec<_> = iter::once(("domain", domain_label(domain))).chain(labels).collect();
        (at, registry.counter(metric, &labels))
    });
    counters.collect()
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
