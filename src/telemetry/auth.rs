//! What authentication counts.

use std::sync::Arc;

use metrics::Counter;
use weir_telemetry::{Registry, Reloads};

const AUTH_IN_FORCE: &str = "weir_auth_last_reload_successful";
const AUTH_RELOADS: &str = "weir_auth_reloads_total";
const REFUSED: &str = "weir_auth_refused_total";

/// The counters, with what they mean.
pub const COUNTERS: &[(&str, &str)] = &[
    (AUTH_RELOADS, "Reloads of the file that says who may do what, by result (success, error)."),
    (REFUSED, "Calls refused for who calls, by listener and reason (unauthenticated, permission_denied)."),
];

/// The gauges, with what they mean.
pub const GAUGES: &[(&str, &str)] =
    &[(AUTH_IN_FORCE, "Whether the file on disk that says who may do what is in force (1), or the one before (0).")];

/// What a listener counts where callers are known.
#[derive(Clone)]
pub struct AuthMeter {
    unauthenticated: Counter,
    denied: Counter,
}

impl AuthMeter {
    pub(super) fn new(registry: &Registry, listener: &str) -> Self {
        let refused = |reason| registry.counter(REFUSED, &[("listener", listener), ("reason", reason)]);
        Self { unauthenticated: refused("unauthenticated"), denied: refused("permission_denied") }
    }

    /// Calls that were refused: because it is not known who calls, or because it is.
    pub fn refused(&self, unauthenticated: bool) -> &Counter {
        if unauthenticated { &self.unauthenticated } else { &self.denied }
    }
}

/// The meter of the file that says who may do what.
pub(super) fn reloads(registry: &Arc<Registry>) -> Reloads {
    Reloads::new(registry, AUTH_RELOADS, AUTH_IN_FORCE, &[])
}
