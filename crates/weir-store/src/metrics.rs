//! Metrics of a shared store.

use std::sync::Arc;

use metrics::Counter;
use parking_lot::Mutex;
use tokio::time::Instant;

use weir_telemetry::{
    Histogram, Metric, Registry, Render,
    histogram::{DURATIONS, SIZES},
    text::{escaped, heading},
};

const DURATION: &str = "weir_store_duration_seconds";
const BATCH_SIZE: &str = "weir_store_batch_size";
pub(crate) const ERRORS: Metric =
    ("weir_store_errors_total", "Requests that the shared store did not answer, by kind.");
pub(crate) const NEAR_HITS: Metric = (
    "weir_near_cache_hits_total",
    "Checks with a refusal from the near cache, for which the shared store was not asked.",
);
pub(crate) const NEAR_FULL: Metric =
    ("weir_near_cache_full_total", "Refusals of the shared store for which the near cache had no room.");

const UNDO_FAILURES: Metric =
    ("weir_store_undo_failures_total", "Charges of refused checks, and refunds, that a Cluster did not take back.");
const REPLICATION_TIMEOUTS: Metric = (
    "weir_store_replication_timeouts_total",
    "Checks answered before store.redis.wait_replicas replicas had acknowledged their charges.",
);

const SERVER_UP: &str = "weir_store_server_up";
const CONNECTIONS: &str = "weir_store_connections";
const IDLE: &str = "weir_store_connections_idle";
const WAITING: &str = "weir_store_waiting_checks";

/// The label value of the shared store.
pub(crate) const STORE: &str = "redis";

/// Metrics of a shared store.
#[derive(Debug)]
pub struct StoreMetrics {
    /// Durations of round trips that decided checks.
    pub(crate) decide: Histogram,
    /// Durations of resets, each with any number of round trips.
    pub(crate) reset: Histogram,
    /// Checks in each script call.
    pub(crate) batches: Histogram,
    /// Charges of refused checks that could not be undone.
    pub(crate) undo_failures: Counter,
    /// Checks answered before enough replicas had acknowledged their charges.
    pub(crate) replication_timeouts: Counter,
    servers: Mutex<Vec<ServerStatus>>,
}

/// Status of one server of the store.
#[derive(Clone, Debug, Default)]
pub struct ServerStatus {
    /// Its address, or the name under which Sentinel knows it.
    pub server: String,
    /// The outage, while its circuit breaker is open.
    pub outage: Option<Outage>,
    /// Open connections.
    pub open: usize,
    /// Idle connections, also counted in `open`.
    pub idle: usize,
    /// Checks queued for the next round trip.
    pub waiting: usize,
}

/// Cause and start of an outage.
#[derive(Clone, Debug)]
pub struct Outage {
    /// The failure that last opened the circuit breaker.
    pub cause: Arc<str>,
    /// Time when it first opened in this outage.
    pub since: Instant,
}

impl Default for StoreMetrics {
    fn default() -> Self {
        Self::new(&Registry::default())
    }
}

impl StoreMetrics {
    /// Makes the metrics, with the counters in this registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |metric| registry.counter(metric, &[("store", STORE)]);
        Self {
            decide: Histogram::new(DURATIONS),
            reset: Histogram::new(DURATIONS),
            batches: Histogram::new(SIZES),
            undo_failures: counter(UNDO_FAILURES),
            replication_timeouts: counter(REPLICATION_TIMEOUTS),
            servers: Mutex::default(),
        }
    }

    /// Returns the histogram of the round trips that decided checks.
    pub fn round_trips(&self) -> &Histogram {
        &self.decide
    }

    /// Replaces the status of all servers; servers that are not in it lose their series.
    pub fn servers(&self, servers: Vec<ServerStatus>) {
        *self.servers.lock() = servers;
    }

    fn render_servers(&self, out: &mut String) {
        let servers = self.servers.lock();
        let mut gauge = |name: &str, help: &str, value: fn(&ServerStatus) -> usize| {
            heading(out, name, "gauge", help);
            for status in servers.iter() {
                out.push_str(&format!("{name}{{server=\"{}\"}} {}\n", escaped(&status.server), value(status)));
            }
        };
        gauge(SERVER_UP, "Whether a server of the shared store is asked; 0 while its breaker is open.", |status| {
            usize::from(status.outage.is_none())
        });
        gauge(CONNECTIONS, "Connections to a server of the shared store.", |status| status.open);
        gauge(IDLE, "Idle connections to a server of the shared store.", |status| status.idle);
        gauge(WAITING, "Checks that wait for the next round trip to a server of the shared store.", |status| {
            status.waiting
        });
    }
}

impl Render for StoreMetrics {
    fn render(&self, out: &mut String) {
        let help = "Time that the shared store takes, by operation: a round trip that decides checks, many of which may share \
                    it (decide), or a whole reset (reset).";
        heading(out, DURATION, "histogram", help);
        for (op, histogram) in [("decide", &self.decide), ("reset", &self.reset)] {
            histogram.render(DURATION, &format!("store=\"{STORE}\",op=\"{op}\""), out);
        }
        heading(out, BATCH_SIZE, "histogram", "Checks that shared one call of the script.");
        self.batches.render(BATCH_SIZE, &format!("store=\"{STORE}\""), out);
        self.render_servers(out);
    }
}
