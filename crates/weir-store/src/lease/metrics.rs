//! Metrics of leases.

use std::sync::Arc;

use metrics::{Counter, Gauge};

use weir_core::hold::{Grant, Renewal};
use weir_telemetry::{Metric, Registry, ShardedCounters};

const DECISIONS: Metric =
    ("weir_leases_decisions_total", "Checks decided from leases, without the shared store, by outcome.");
const SPENT: Metric = ("weir_leases_spent_units_total", "Units spent from leases.");
const GRANTED: Metric = ("weir_leases_granted_units_total", "Units that the shared store granted to leases.");
const BURNT: Metric = (
    "weir_leases_burnt_units_total",
    "Units of leases that were not renewed by their deadline: they count as spent, unless the store lost its data.",
);
const RENEWALS: Metric = (
    "weir_leases_renewals_total",
    "Renewals of leases, by result: ok, or lost: not answered, or not sent since the store is down.",
);
const FULL: Metric = (
    "weir_leases_full_total",
    "Times that no unit of a key in demand could be leased: too many keys are leased, by this replica or under one limit.",
);
const LEASES: Metric = ("weir_leases", "Keys of which this replica leases units.");
const HELD: Metric = ("weir_leases_held_units", "Units that this replica holds and has not spent.");

const ALLOWED: usize = 0;
const REFUSED: usize = 1;
const UNITS: usize = 2;

/// The metrics of a replica's leases.
pub(super) struct LeaseMetrics {
    /// The counters that change with every decision.
    decided: Arc<ShardedCounters>,
    granted: Counter,
    burnt: Counter,
    renewed: Counter,
    lost: Counter,
    full: Counter,
    leases: Gauge,
    held: Gauge,
}

impl LeaseMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |metric, labels: &[(&'static str, &str)]| registry.counter(metric, labels);
        let decided = [
            counter(DECISIONS, &[("outcome", "allowed")]),
            counter(DECISIONS, &[("outcome", "refused")]),
            counter(SPENT, &[]),
        ];
        Self {
            decided: registry.sharded(decided.into()),
            granted: counter(GRANTED, &[]),
            burnt: counter(BURNT, &[]),
            renewed: counter(RENEWALS, &[("result", "ok")]),
            lost: counter(RENEWALS, &[("result", "lost")]),
            full: counter(FULL, &[]),
            leases: registry.gauge(LEASES, &[]),
            held: registry.gauge(HELD, &[]),
        }
    }

    /// Counts a check that a lease covered.
    pub(super) fn spent(&self, units: u64) {
        self.decided.add(ALLOWED);
        self.decided.add_many(UNITS, units);
    }

    /// Counts a refusal without asking the store, after a recent refusal by the store.
    pub(super) fn refused(&self) {
        self.decided.add(REFUSED);
    }

    /// Counts a renewal that was answered, and the units that turned out to be burnt.
    pub(super) fn renewed(&self, renewal: &Renewal, grant: &Grant, burnt: u64) {
        if grant.is_full(renewal) {
            self.full();
        }
        self.renewed.increment(1);
        self.granted.increment(grant.units);
        self.burnt.increment(burnt);
    }

    /// Counts a renewal without a reply.
    pub(super) fn lost(&self) {
        self.lost.increment(1);
    }

    /// Counts a hot key for which there was no space, in the table or among the holds of a level.
    pub(super) fn full(&self) {
        self.full.increment(1);
    }

    /// Sets the gauges.
    pub(super) fn held(&self, leases: usize, units: u64) {
        self.leases.set(leases as f64);
        self.held.set(units as f64);
    }
}
