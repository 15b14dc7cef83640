//! What a shared store counts.

use std::{sync::Arc, time::Duration};

use metrics::Counter;

use super::{
    Histogram, Metrics,
    histogram::{DURATIONS, SIZES},
};

const DURATION: &str = "weir_store_duration_seconds";
const BATCH_SIZE: &str = "weir_store_batch_size";
/// Requests that the store did not answer.
pub const ERRORS: &str = "weir_store_errors_total";
/// Refusals answered from the near cache.
pub const NEAR_HITS: &str = "weir_near_cache_hits_total";
/// Refusals for which the near cache had no room.
pub const NEAR_FULL: &str = "weir_near_cache_full_total";

/// Whether a server is asked.
pub const SERVER_UP: &str = "weir_store_server_up";
/// Connections to a server.
pub const CONNECTIONS: &str = "weir_store_connections";
/// Those that nobody uses.
pub const IDLE: &str = "weir_store_connections_idle";
/// Checks that wait for the next round trip.
pub const WAITING: &str = "weir_store_waiting";

/// The label of the shared store.
const STORE: &str = "redis";

/// What is timed.
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
}

impl Default for StoreMeter {
    fn default() -> Self {
        Self { decide: Histogram::new(DURATIONS), reset: Histogram::new(DURATIONS), batches: Histogram::new(SIZES) }
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

    /// Writes its histograms in Prometheus text.
    pub fn render(&self, out: &mut String) {
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
    }
}

impl Metrics {
    /// A request that the shared store did not answer, for a reason of this kind.
    pub fn store_error(&self, kind: &'static str) -> Counter {
        self.counter(ERRORS, &[("store", STORE), ("kind", kind)])
    }

    /// What the near cache counts: checks that it answered, and refusals for which it had no room.
    pub fn near_cache(&self) -> (Counter, Counter) {
        (self.counter(NEAR_HITS, &[]), self.counter(NEAR_FULL, &[]))
    }

    /// How one of its servers is: whether it is asked, its connections, how many of them nobody uses, and how many checks
    /// wait for it.
    pub fn server(&self, server: &str, up: bool, open: usize, idle: usize, waiting: usize) {
        let gauges = [(SERVER_UP, usize::from(up)), (CONNECTIONS, open), (IDLE, idle), (WAITING, waiting)];
        for (name, value) in gauges {
            self.gauge(name, &[("server", server)]).set(value as f64);
        }
    }

    /// The meter of the shared store, rendered with the rest.
    pub fn shared_store(&self) -> Arc<StoreMeter> {
        Arc::clone(self.store.get_or_init(Arc::default))
    }
}
