//! Metrics of overrides.

use std::time::{SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge};

use super::Metrics;

const OVERRIDES: &str = "weir_overrides";
const FAILURES: &str = "weir_override_read_failures_total";
const LAST_READ: &str = "weir_override_last_read_timestamp_seconds";

/// The counters, with their HELP texts.
pub const COUNTERS: &[(&str, &str)] =
    &[(FAILURES, "Attempts to read the stored overrides that failed. Those known stay in force until their end.")];
/// The gauges, with their HELP texts.
pub const GAUGES: &[(&str, &str)] = &[
    (OVERRIDES, "Overrides that this replica knows, those that begin later included."),
    (LAST_READ, "Unix time at which this replica last read the stored overrides, in seconds."),
];

/// The metrics of a replica's overrides.
pub struct OverrideMetrics {
    /// Number of known overrides.
    pub overrides: Gauge,
    /// Failed attempts to read the overrides.
    pub failures: Counter,
    last_read: Gauge,
}

impl OverrideMetrics {
    /// Creates the metrics of this service.
    pub fn new(metrics: &Metrics) -> Self {
        let registry = metrics.registry();
        let gauge = |name| registry.gauge(name, &[]);
        Self { overrides: gauge(OVERRIDES), failures: registry.counter(FAILURES, &[]), last_read: gauge(LAST_READ) }
    }

    /// Records that the overrides were read.
    pub fn read(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_read.set(now.as_secs_f64());
    }
}
