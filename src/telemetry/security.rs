//! What encryption and the knowledge of callers count.

use std::time::SystemTime;

use metrics::{Counter, Gauge};

use super::Metrics;

const RELOADS: &str = "weir_tls_reloads_total";
const EXPIRY: &str = "weir_tls_certificate_expiry_timestamp_seconds";
const FAILURES: &str = "weir_tls_handshake_failures_total";
const REVOKED: &str = "weir_tls_connections_revoked_total";
const IN_FORCE: &str = "weir_tls_last_reload_successful";
const AUTH_IN_FORCE: &str = "weir_auth_last_reload_successful";
const AUTH_RELOADS: &str = "weir_auth_reloads_total";
const REFUSED: &str = "weir_auth_refused_total";

/// The counters, with what they mean.
pub const COUNTERS: &[(&str, &str)] = &[
    (RELOADS, "Reloads of a listener's certificate, key and client authorities, by result (success, error)."),
    (FAILURES, "TLS handshakes that failed, by listener and reason (certificate, closed, crowded, protocol, timeout)."),
    (REVOKED, "Connections ended because the client's certificate is not accepted any more, by listener."),
    (AUTH_RELOADS, "Reloads of the file that says who may do what, by result (success, error)."),
    (REFUSED, "Calls refused for who calls, by listener and reason (unauthenticated, permission_denied)."),
];

/// The gauges, with what they mean.
pub const GAUGES: &[(&str, &str)] = &[
    (EXPIRY, "When the certificate of a listener ends."),
    (
        IN_FORCE,
        "Whether a listener's certificate, key and client authorities on disk are in force (1), or the ones before (0).",
    ),
    (AUTH_IN_FORCE, "Whether the file on disk that says who may do what is in force (1), or the one before (0)."),
];

/// Why handshakes fail.
const REASONS: [&str; 5] = ["certificate", "closed", "crowded", "protocol", "timeout"];

/// What an encrypted listener counts.
pub struct TlsMeter {
    failed: [Counter; REASONS.len()],
    /// Connections ended because their certificate is not accepted any more.
    pub revoked: Counter,
    expiry: Gauge,
    reloaded: Reloads,
}

impl TlsMeter {
    /// Handshakes that failed for this reason; for one that there is not, those of the last.
    pub fn failed(&self, reason: &str) -> &Counter {
        let at = REASONS.iter().position(|known| *known == reason);
        &self.failed[at.unwrap_or(REASONS.len() - 1)]
    }

    /// A certificate that ends then is in force.
    pub fn in_force(&self, end: SystemTime) {
        self.expiry.set(end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }

    /// The files were loaded again, or could not be.
    pub fn reload(&self, success: bool) {
        self.reloaded.count(success);
    }
}

/// What a listener counts where callers are known.
#[derive(Clone)]
pub struct AuthMeter {
    unauthenticated: Counter,
    denied: Counter,
}

impl AuthMeter {
    /// Calls that were refused: because it is not known who calls, or because it is.
    pub fn refused(&self, unauthenticated: bool) -> &Counter {
        if unauthenticated { &self.unauthenticated } else { &self.denied }
    }
}

/// How often files were loaded again, or could not be, and which of it was last; shown from the start, so that the first time is seen
/// as an increase.
pub struct Reloads {
    counted: [Counter; 2],
    in_force: Gauge,
}

impl Reloads {
    fn new(counted: [Counter; 2], in_force: Gauge) -> Self {
        in_force.set(1.0);
        Self { counted, in_force }
    }

    /// They were loaded again, or could not be.
    pub fn count(&self, success: bool) {
        self.counted[usize::from(success)].increment(1);
        self.in_force.set(f64::from(u8::from(success)));
    }
}

impl Metrics {
    /// The meter of an encrypted listener.
    pub fn tls(&self, listener: &str) -> TlsMeter {
        let reload = |result| self.counter(RELOADS, &[("listener", listener), ("result", result)]);
        TlsMeter {
            failed: REASONS.map(|reason| self.counter(FAILURES, &[("listener", listener), ("reason", reason)])),
            revoked: self.counter(REVOKED, &[("listener", listener)]),
            expiry: self.gauge(EXPIRY, &[("listener", listener)]),
            reloaded: Reloads::new(["error", "success"].map(reload), self.gauge(IN_FORCE, &[("listener", listener)])),
        }
    }

    /// The meter of a listener where callers are known.
    pub fn auth(&self, listener: &str) -> AuthMeter {
        let refused = |reason| self.counter(REFUSED, &[("listener", listener), ("reason", reason)]);
        AuthMeter { unauthenticated: refused("unauthenticated"), denied: refused("permission_denied") }
    }

    /// The meter of the file that says who may do what.
    pub fn auth_reloads(&self) -> Reloads {
        let counted = ["error", "success"].map(|result| self.counter(AUTH_RELOADS, &[("result", result)]));
        Reloads::new(counted, self.gauge(AUTH_IN_FORCE, &[]))
    }
}
