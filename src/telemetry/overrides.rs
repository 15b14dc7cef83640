//! Metrics of overrides.

use std::time::{SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge};
use weir_telemetry::Metric;

use super::Metrics;

const OVERRIDES: Metric = ("weir_overrides", "Overrides that this replica knows, those that begin later included.");
const FAILURES: Metric = (
    "weir_override_read_failures_total",
    "Attempts to read the stored overrides that failed. Those known stay in force until their end.",
);
const LAST_READ: Metric = (
    "weir_override_last_read_timestamp_seconds",
    "Unix time at which this replica last read the stored overrides, in seconds.",
);

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
        let gauge = |metric| registry.gauge(metric, &[]);
        Self { overrides: gauge(OVERRIDES), failures: registry.counter(FAILURES, &[]), last_read: gauge(LAST_READ) }
    }

    /// Records that the overrides were read.
    pub fn read(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_read.set(now.as_secs_f64());
    }
}
