//! The metrics of listeners.

use std::time::SystemTime;

use metrics::{Counter, Gauge};
use weir_telemetry::{Metric, Registry, Reloads};

const CONNECTIONS: Metric = ("weir_connections", "Open connections, by listener.");
const CONNECTIONS_REJECTED: Metric =
    ("weir_connections_rejected_total", "Connections rejected because max_connections were open, by listener.");
const CONNECTIONS_ENDED: Metric = (
    "weir_connections_closed_total",
    "Connections closed, by listener and reason (age, idle; evicted: not authenticated or idle, closed for a \
     new one at max_connections; unread: its client read too few of the answers; rapid_reset: it made calls only to cancel them; \
     flooded: HTTP/2 closed it for abuse, or for more small messages than its streams could read).",
);
const REQUESTS_REJECTED: Metric = (
    "weir_requests_rejected_total",
    "Requests rejected by overload protection, by listener and reason (rate, concurrency, open; message: not received \
     in time; size: a message or an HTTP body was too large; unread: too many answers were not read).",
);
const RELOADS: Metric = (
    "weir_tls_reloads_total",
    "Reloads of the server certificate, key and client CA bundle, by listener and result (success, error).",
);
const EXPIRY: Metric = (
    "weir_tls_certificate_expiry_timestamp_seconds",
    "Unix time at which the server certificate expires, in seconds, by listener.",
);
const FAILURES: Metric = (
    "weir_tls_handshake_failures_total",
    "Failed TLS handshakes, by listener and reason (certificate, closed, evicted, protocol, timeout).",
);
const REVOKED: Metric = (
    "weir_tls_connections_revoked_total",
    "Connections closed because the client certificate is no longer accepted, by listener.",
);
const IN_FORCE: Metric = (
    "weir_tls_last_reload_successful",
    "Whether certificate, key and client CA bundle on disk are in force (1); 0 after an invalid change; by listener.",
);

/// The counters of a listener.
#[derive(Clone)]
pub struct ListenerMetrics {
    pub(crate) open: Gauge,
    pub(crate) rejected: Counter,
    pub(crate) aged: Counter,
    pub(crate) idle: Counter,
    pub(crate) evicted: Counter,
    pub(crate) left_unread: Counter,
    pub(crate) rapid_resets: Counter,
    pub(crate) flooded: Counter,
    pub(crate) too_fast: Counter,
    pub(crate) unread: Counter,
    /// Requests rejected at the limit on concurrency.
    pub too_many: Counter,
    /// Calls rejected or ended because too many were open.
    pub too_many_open: Counter,
    /// Calls ended because their message did not arrive in time.
    pub message_timeout: Counter,
    /// Unary calls rejected because their message was too large.
    pub too_large: Counter,
}

impl ListenerMetrics {
    /// Makes the metrics of the listener with this name.
    pub fn new(registry: &Registry, listener: &str) -> Self {
        let counter = |metric, reason| registry.counter(metric, &[("listener", listener), ("reason", reason)]);
        Self {
            open: registry.gauge(CONNECTIONS, &[("listener", listener)]),
            rejected: registry.counter(CONNECTIONS_REJECTED, &[("listener", listener)]),
            aged: counter(CONNECTIONS_ENDED, "age"),
            idle: counter(CONNECTIONS_ENDED, "idle"),
            evicted: counter(CONNECTIONS_ENDED, "evicted"),
            left_unread: counter(CONNECTIONS_ENDED, "unread"),
            rapid_resets: counter(CONNECTIONS_ENDED, "rapid_reset"),
            flooded: counter(CONNECTIONS_ENDED, "flooded"),
            too_fast: counter(REQUESTS_REJECTED, "rate"),
            unread: counter(REQUESTS_REJECTED, "unread"),
            too_many: counter(REQUESTS_REJECTED, "concurrency"),
            too_many_open: counter(REQUESTS_REJECTED, "open"),
            message_timeout: counter(REQUESTS_REJECTED, "message"),
            too_large: counter(REQUESTS_REJECTED, "size"),
        }
    }
}

/// Reasons of failed handshakes.
const REASONS: [&str; 5] = ["certificate", "closed", "evicted", "protocol", "timeout"];

/// The counters of a listener with TLS.
pub struct TlsMetrics {
    failed: [Counter; REASONS.len()],
    pub(crate) revoked: Counter,
    expiry: Gauge,
    /// Reloads of the files.
    pub reloads: Reloads,
}

impl TlsMetrics {
    /// Makes the metrics of the listener with this name.
    pub fn new(registry: &Registry, listener: &str) -> Self {
        let of_listener = [("listener", listener)];
        Self {
            failed: REASONS.map(|reason| registry.counter(FAILURES, &[("listener", listener), ("reason", reason)])),
            revoked: registry.counter(REVOKED, &of_listener),
            expiry: registry.gauge(EXPIRY, &of_listener),
            reloads: Reloads::new(registry, RELOADS, IN_FORCE, &of_listener),
        }
    }

    /// Returns the counter of handshakes that failed for this reason, or the last reason's for an unknown one.
    pub(crate) fn failed(&self, reason: &str) -> &Counter {
        let at = REASONS.iter().position(|known| *known == reason);
        &self.failed[at.unwrap_or(REASONS.len() - 1)]
    }

    /// Records the expiry of the current certificate.
    pub(crate) fn in_force(&self, end: SystemTime) {
        self.expiry.set(end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }
}
