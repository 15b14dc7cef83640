//! The counters of one policy, created when it is compiled, so that a check only increments them.

use std::sync::Arc;

use weir_core::{
    domain::{Decision, OnStoreFailure},
    hold::{Grant, RenewalTotals},
};
use weir_policy::overrides::CHANGES;
use weir_store::Effect;
use weir_telemetry::ShardedCounters;
use weir_telemetry::request::{OTHER, Outcome};

use super::{
    metrics::Metrics,
    series::{
        ALLOWED, CHARGED_UNITS, CallKind, Group, LIMITED, LeaseCall, NEAR, OF_DOMAIN, OF_LIMIT, ReservationCall,
        ReservationUnits, SHADOW_LIMITED, counters_of, of_domain, of_limit,
    },
};

/// The counters of one policy.
pub struct PolicyCounters {
    counters: Arc<ShardedCounters>,
    /// Indexes of the first counter of each domain and limit, by their numbers.
    domains: Vec<usize>,
    limits: Vec<usize>,
}

/// The values of the counters at one time.
pub struct Counts<'m> {
    counters: &'m PolicyCounters,
    totals: Vec<u64>,
}

impl Counts<'_> {
    /// Returns the checks of the domain of this number that were allowed, refused, and could not be decided; `None` if
    /// it is counted together with others.
    pub fn domain(&self, domain: u32) -> Option<[u64; Outcome::ALL.len()]> {
        let start = self.start_of(domain)?;
        let mut sums = [0; Outcome::ALL.len()];
        for (at, index) in Group::Checks.counters().enumerate() {
            sums[at % Outcome::ALL.len()] += self.totals[start + index];
        }
        Some(sums)
    }

    /// Returns the checks of the domain that no limit applied to; `None` as for [`Self::domain`].
    pub fn unmatched(&self, domain: u32) -> Option<u64> {
        Some(self.totals[self.start_of(domain)? + Group::Unmatched.offset()])
    }

    /// Returns the checks of the domain that were decided without the shared store, by rule; `None` as for
    /// [`Self::domain`].
    pub fn degraded(&self, domain: u32) -> Option<[u64; OnStoreFailure::ALL.len()]> {
        let first = self.start_of(domain)? + Group::Degraded.offset();
        Some(std::array::from_fn(|rule| self.totals[first + rule]))
    }

    fn start_of(&self, domain: u32) -> Option<usize> {
        self.counters.domains.get(domain as usize).copied().filter(|start| *start != OTHER_DOMAIN)
    }

    /// Returns the decisions of the limit with this number: passes, refusals, refusals of a shadow limit, and passes that
    /// left less than a fifth of the limit; `None` if it shares a series with others.
    pub fn limit(&self, limit: u32) -> Option<[u64; 4]> {
        let start = self.counters.limits.get(limit as usize).copied().filter(|start| *start != OTHER_LIMIT)?;
        Some([ALLOWED, LIMITED, SHADOW_LIMITED, NEAR].map(|index| self.totals[start + index]))
    }
}

/// The index of the first counter of a domain, or of a limit in it, with their names.
type Named = (usize, Box<str>, Option<Box<str>>);

/// The indexes of the first counters, shared by domains and limits without their own counters.
const OTHER_DOMAIN: usize = 0;
const OTHER_LIMIT: usize = OF_DOMAIN;

impl PolicyCounters {
    /// Creates the counters of these domains, and of these limits, each given as domain and name; both in the order of
    /// their numbers.
    pub fn new<'a>(
        metrics: &Metrics,
        domains: impl IntoIterator<Item = &'a str>,
        limits: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut named: Vec<Named> =
            vec![(OTHER_DOMAIN, OTHER.into(), None), (OTHER_LIMIT, OTHER.into(), Some(OTHER.into()))];
        let mut len = OTHER_LIMIT + OF_LIMIT;
        let mut start_of = |domain: &str, limit: Option<&str>| {
            let start = len;
            metrics.admits(domain, limit).then(|| {
                len += if limit.is_some() { OF_LIMIT } else { OF_DOMAIN };
                named.push((start, domain.into(), limit.map(Box::from)));
                start
            })
        };
        let domains: Vec<_> = domains.into_iter().map(|it| start_of(it, None).unwrap_or(OTHER_DOMAIN)).collect();
        let limits = limits.into_iter().map(|(domain, limit)| start_of(domain, Some(limit)).unwrap_or(OTHER_LIMIT));
        let limits: Vec<_> = limits.collect();
        let others = domains.iter().filter(|start| **start == OTHER_DOMAIN).count();
        metrics.without_series(others + limits.iter().filter(|start| **start == OTHER_LIMIT).count());
        let registry = Arc::clone(metrics.registry());
        let begin = move |index| {
            let (start, domain, limit) = &named[named.partition_point(|(start, ..)| *start <= index) - 1];
            let at = |(offset, counter)| (start + offset, counter);
            match limit {
                None => of_domain(&registry, domain, index - start).into_iter().map(at).collect(),
                Some(limit) => of_limit(&registry, domain, limit).into_iter().enumerate().map(at).collect(),
            }
        };
        Self { counters: metrics.registry().sharded_from_first_count(len, begin), domains, limits }
    }

    /// Counts one check in the domain of this number; `None`: in the shared counters of domains without their own.
    #[inline]
    pub fn check(&self, domain: Option<u32>, transport: CallKind, outcome: Outcome) {
        self.add(domain, Group::Checks, transport as usize * Outcome::ALL.len() + outcome as usize);
    }

    /// Counts one check that was decided without the shared store.
    pub fn degraded(&self, domain: Option<u32>, rule: OnStoreFailure) {
        self.add(domain, Group::Degraded, rule as usize);
    }

    /// Counts one check that met no limit.
    pub fn unmatched(&self, domain: Option<u32>) {
        self.add(domain, Group::Unmatched, 0);
    }

    /// Counts one check to which an override with this change applied.
    pub fn overridden(&self, domain: Option<u32>, change: &str) {
        if let Some(index) = CHANGES.iter().position(|known| *known == change) {
            self.add(domain, Group::Overridden, index);
        }
    }

    /// Counts one check that was a dry run.
    pub fn dry_run(&self, domain: Option<u32>) {
        self.add(domain, Group::DryRuns, 0);
    }

    /// Counts one check that repeated a request id and got the first answer.
    pub fn repeated(&self, domain: Option<u32>) {
        self.add(domain, Group::Repeated, 0);
    }

    /// Counts one check whose call ended before the shared store answered.
    pub fn abandoned(&self, domain: Option<u32>) {
        self.add(domain, Group::Abandoned, 0);
    }

    /// Counts one call about a reservation, and the units that it moved.
    pub fn reservation(&self, domain: Option<u32>, call: ReservationCall, units: &[(ReservationUnits, u64)]) {
        self.add(domain, Group::Reservations, call as usize);
        let start = self.domain(domain) + Group::ReservationUnits.offset();
        for (kind, count) in units.iter().filter(|(_, count)| *count > 0) {
            self.counters.add_many(start + *kind as usize, *count);
        }
    }

    /// Counts one request about a client's lease, the units that it was granted, and the outcome of those granted
    /// before.
    pub fn lease(&self, domain: Option<u32>, call: LeaseCall, grant: Option<&Grant>) {
        self.add(domain, Group::Leases, call as usize);
        let Some(&Grant { settled: RenewalTotals { granted, spent, returned, burnt }, .. }) = grant else { return };
        let units = [
            (Group::LeaseUnitsGranted, granted),
            (Group::LeaseUnitsSpent, spent),
            (Group::LeaseUnitsReturned, returned),
            (Group::LeaseUnitsBurnt, burnt),
        ];
        for (group, count) in units.into_iter().filter(|(_, count)| *count > 0) {
            self.counters.add_many(self.domain(domain) + group.offset(), count);
        }
    }

    /// Counts one decision of the limit of this number, and its charge; `None`: in the shared counters of limits
    /// without their own.
    #[inline]
    pub fn limit(&self, limit: Option<u32>, decision: &Decision, shadow: bool, effect: Effect) {
        let start = limit.and_then(|limit| self.limits.get(limit as usize)).copied().unwrap_or(OTHER_LIMIT);
        counters_of(decision, shadow, effect).for_each(|counter| self.counters.add(start + counter));
        if effect.charged > 0 {
            self.counters.add_many(start + CHARGED_UNITS, effect.charged);
        }
    }

    /// Whether the limit of this number has its own counters.
    pub fn has_own_counters(&self, limit: u32) -> bool {
        self.limits.get(limit as usize).is_some_and(|start| *start != OTHER_LIMIT)
    }

    /// Returns the counts since the counters were created.
    pub fn counts(&self) -> Counts<'_> {
        Counts { counters: self, totals: self.counters.totals() }
    }

    #[inline]
    fn add(&self, domain: Option<u32>, group: Group, at: usize) {
        self.counters.add(self.domain(domain) + group.offset() + at);
    }

    fn domain(&self, domain: Option<u32>) -> usize {
        domain.and_then(|domain| self.domains.get(domain as usize)).copied().unwrap_or(OTHER_DOMAIN)
    }
}
