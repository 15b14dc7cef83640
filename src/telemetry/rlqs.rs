//! Metrics of Envoy's quotas.

use std::time::{Duration, Instant};

use metrics::{Counter, Gauge};
use weir_core::quota::{UNITS_PER_REQUEST, Usage};
use weir_telemetry::{LogLimit, Metric, Registry};

const REQUESTS: Metric = (
    "weir_rlqs_requests_total",
    "Requests that Envoys decided by their assignments and reported, by domain and outcome (allowed, denied).",
);
const REJECTED: Metric = (
    "weir_rlqs_rejected_total",
    "Reports of Envoys that were rejected, by reason: unreadable: malformed, or of a bucket whose id is not UTF-8; \
     large: of a bucket of over 64 entries or 4 KiB, which is denied, or of over 64 KiB, which is dropped; \
     full: of a new bucket beyond rlqs.max_buckets; domain: a stream whose domain is not in rlqs.domains.",
);
const RENEWALS_LOST: Metric =
    ("weir_rlqs_renewals_lost_total", "Renewals of this replica's part of a limit that the store did not answer.");
const STREAMS: Metric = ("weir_rlqs_streams", "Streams of Envoys that report to this replica.");
const BUCKETS: Metric = ("weir_rlqs_buckets", "Buckets that they report.");
const HELD: Metric = (
    "weir_rlqs_held_requests_per_second",
    "The sum of the rates of all limits that this replica divides among its Envoys, in requests per second.",
);

/// Minimum interval between two log lines about one reason.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Reports that are rejected, by reason.
pub struct RlqsRejections {
    /// Messages that are malformed, and buckets that no answer can name.
    pub unreadable: Rejection,
    /// Buckets that are too large, which are denied, and reports that are, which are dropped.
    pub large: Rejection,
    /// Buckets, or further holders of them, beyond the capacity.
    pub full: Rejection,
    /// Streams of a domain whose limits are not divided.
    pub domain: Rejection,
}

/// A reason: its reports are counted, and logged at most once a minute.
pub struct Rejection {
    count: Counter,
    log: LogLimit,
}

impl RlqsRejections {
    /// Creates the counters.
    pub fn new(registry: &Registry) -> Self {
        let reason = |reason| Rejection {
            count: registry.counter(REJECTED, &[("reason", reason)]),
            log: LogLimit::every(LOG_EVERY),
        };
        Self {
            unreadable: reason("unreadable"),
            large: reason("large"),
            full: reason("full"),
            domain: reason("domain"),
        }
    }
}

impl Rejection {
    /// Counts one. Returns whether it may be logged.
    pub fn count(&self) -> bool {
        self.count.increment(1);
        self.log.allows(Instant::now())
    }
}

/// The metrics of a replica's quotas.
pub struct RlqsMetrics {
    /// Allowed and denied requests, by domain.
    used: Vec<[Counter; 2]>,
    /// Levels that the store did not renew.
    pub lost: Counter,
    streams: Gauge,
    buckets: Gauge,
    held: Gauge,
}

impl RlqsMetrics {
    /// Creates the metrics for these domains.
    pub fn new<'d>(registry: &Registry, domains: impl Iterator<Item = &'d str>) -> Self {
        let used = |domain| {
            ["allowed", "denied"].map(|outcome| registry.counter(REQUESTS, &[("domain", domain), ("outcome", outcome)]))
        };
        Self {
            used: domains.map(used).collect(),
            lost: registry.counter(RENEWALS_LOST, &[]),
            streams: registry.gauge(STREAMS, &[]),
            buckets: registry.gauge(BUCKETS, &[]),
            held: registry.gauge(HELD, &[]),
        }
    }

    /// Counts the requests that an Envoy decided locally in the domain of this number.
    pub fn used(&self, domain: usize, usage: &Usage) {
        if let Some([allowed, denied]) = self.used.get(domain) {
            allowed.increment(usage.allowed);
            denied.increment(usage.denied);
        }
    }

    /// Sets the current totals; `held` is in thousandths of a request a second.
    pub fn set_totals(&self, streams: usize, buckets: usize, held: u64) {
        self.streams.set(streams as f64);
        self.buckets.set(buckets as f64);
        self.held.set(held as f64 / UNITS_PER_REQUEST as f64);
    }
}
