//! Metrics of a shared store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::Counter;
use parking_lot::Mutex;
use tokio::time::Instant;

use weir_telemetry::{
    Histogram, Registry, Render,
    histogram::{DURATIONS, SIZES},
};

const DURATION: &str = "weir_store_duration_seconds";
const BATCH_SIZE: &str = "weir_store_batch_size";
const ERRORS: &str = "weir_store_errors_total";
const NEAR_HITS: &str = "weir_near_cache_hits_total";
const NEAR_FULL: &str = "weir_near_cache_full_total";

const SERVER_UP: &str = "weir_store_server_up";
const CONNECTIONS: &str = "weir_store_connections";
const IDLE: &str = "weir_store_connections_idle";
const WAITING: &str = "weir_store_waiting_checks";
const UNDO_FAILURES: &str = "weir_store_undo_failures_total";
const REPLICATION_TIMEOUTS: &str = "weir_store_replication_timeouts_total";

/// The counters, with their HELP texts.
pub const COUNTERS: &[(&str, &str)] = &[
    (ERRORS, "Requests that the shared store did not answer, by kind."),
    (NEAR_HITS, "Checks with a refusal from the near cache, for which the shared store was not asked."),
    (NEAR_FULL, "Refusals of the shared store for which the near cache had no room."),
];

/// The label of the shared store.
const STORE: &str = "redis";

/// A timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOp {
    /// One round trip that decides checks.
    Decide,
    /// One reset, of however many round trips.
    Reset,
}

/// The meter of a shared store.
#[derive(Debug)]
pub struct StoreMeter {
    decide: Histogram,
    reset: Histogram,
    batches: Histogram,
    not_taken_back: AtomicU64,
    replication_timeouts: AtomicU64,
    servers: Mutex<Vec<ServerStatus>>,
}

/// How a server of the store is.
#[derive(Clone, Debug, Default)]
pub struct ServerStatus {
    /// Its address, or by whom it is found.
    pub server: String,
    /// Why it is not asked, while its circuit breaker is open.
    pub outage: Option<Outage>,
    /// Connections to it.
    pub open: usize,
    /// The idle ones among them.
    pub idle: usize,
    /// Checks that wait for the next round trip.
    pub waiting: usize,
}

/// Why a server is not asked, and since when.
#[derive(Clone, Debug)]
pub struct Outage {
    /// The failure that opened the circuit breaker last.
    pub cause: Arc<str>,
    /// When it opened first.
    pub since: Instant,
}

impl Default for StoreMeter {
    fn default() -> Self {
        Self {
            decide: Histogram::new(DURATIONS),
            reset: Histogram::new(DURATIONS),
            batches: Histogram::new(SIZES),
            not_taken_back: AtomicU64::new(0),
            replication_timeouts: AtomicU64::new(0),
            servers: Mutex::default(),
        }
    }
}

impl StoreMeter {
    /// One that went well took so long.
    pub fn took(&self, op: StoreOp, duration: Duration) {
        match op {
            StoreOp::Decide => self.decide.record(duration),
            StoreOp::Reset => self.reset.record(duration),
        }
    }

    /// One call of the script for so many checks.
    pub fn batch(&self, checks: usize) {
        self.batches.record_number(checks as u64);
    }

    /// So many charges of a refused check could not be taken back.
    pub(crate) fn not_taken_back(&self, charges: u64) {
        self.not_taken_back.fetch_add(charges, Ordering::Relaxed);
    }

    /// So many checks were answered before enough replicas had their charges.
    pub(crate) fn replication_timeouts(&self, checks: u64) {
        self.replication_timeouts.fetch_add(checks, Ordering::Relaxed);
    }

    /// The round trips that decided checks.
    pub fn round_trips(&self) -> &Histogram {
        &self.decide
    }

    /// How its servers are now; those that are gone have no series any more.
    pub fn servers(&self, servers: Vec<ServerStatus>) {
        *self.servers.lock() = servers;
    }

    fn render_servers(&self, out: &mut String) {
        let servers = self.servers.lock();
        let mut gauge = |name: &str, help: &str, value: fn(&ServerStatus) -> usize| {
            out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n"));
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

impl Render for StoreMeter {
    fn render(&self, out: &mut String) {
        out.push_str(&format!(
            "# HELP {DURATION} Time that the shared store takes, by operation: a round trip that decides checks, many of \
             which may share it (decide), or a whole reset (reset).\n\
             # TYPE {DURATION} histogram\n"
        ));
        for (op, histogram) in [("decide", &self.decide), ("reset", &self.reset)] {
            histogram.render(DURATION, &format!("store=\"{STORE}\",op=\"{op}\""), out);
        }
        out.push_str(&format!(
            "# HELP {BATCH_SIZE} Checks that shared one call of the script.\n# TYPE {BATCH_SIZE} histogram\n"
        ));
        self.batches.render(BATCH_SIZE, &format!("store=\"{STORE}\""), out);
        for (name, help, count) in [
            (
                UNDO_FAILURES,
                "Charges of refused checks that could not be taken back on a Cluster.",
                &self.not_taken_back,
            ),
            (
                REPLICATION_TIMEOUTS,
                "Checks answered before store.redis.wait_replicas replicas had acknowledged their charges.",
                &self.replication_timeouts,
            ),
        ] {
            let count = count.load(Ordering::Relaxed);
            out.push_str(&format!(
                "# HELP {name} {help}\n# TYPE {name} counter\n{name}{{store=\"{STORE}\"}} {count}\n"
            ));
        }
        self.render_servers(out);
    }
}

/// A label's value as the text format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Counts requests that the shared store did not answer, for a reason of this kind.
pub(crate) fn error_counter(registry: &Registry, kind: &'static str) -> Counter {
    registry.counter(ERRORS, &[("store", STORE), ("kind", kind)])
}

/// Counters of the near cache: checks that it answered, and refusals for which it had no room.
pub(crate) fn near_cache_counters(registry: &Registry) -> (Counter, Counter) {
    (registry.counter(NEAR_HITS, &[]), registry.counter(NEAR_FULL, &[]))
}
