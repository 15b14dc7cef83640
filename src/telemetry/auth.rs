//! The metrics of authentication.

use metrics::Counter;
use weir_telemetry::{Metric, Registry, Reloads};

const AUTH_IN_FORCE: Metric = (
    "weir_auth_last_reload_successful",
    "Whether the credentials file on disk is in force (1); 0 after an invalid change.",
);
const AUTH_RELOADS: Metric =
    ("weir_auth_reloads_total", "Reloads of the credentials file (auth.file), by result (success, error).");
const REJECTED: Metric = (
    "weir_auth_rejected_total",
    "Calls rejected by authentication or authorization, by listener and reason (unauthenticated, permission_denied).",
);

/// The counters of a listener with authentication.
#[derive(Clone)]
pub struct AuthMetrics {
    unauthenticated: Counter,
    denied: Counter,
}

impl AuthMetrics {
    /// Creates the counters of a listener.
    pub fn new(registry: &Registry, listener: &str) -> Self {
        let rejected = |reason| registry.counter(REJECTED, &[("listener", listener), ("reason", reason)]);
        Self { unauthenticated: rejected("unauthenticated"), denied: rejected("permission_denied") }
    }

    /// Returns the counter of rejected calls: unauthenticated, or without the role.
    pub fn rejected(&self, unauthenticated: bool) -> &Counter {
        if unauthenticated { &self.unauthenticated } else { &self.denied }
    }
}

/// Creates the reload metrics of the credentials file.
pub fn reloads(registry: &Registry) -> Reloads {
    Reloads::new(registry, AUTH_RELOADS, AUTH_IN_FORCE, &[])
}
