//! What encryption and the knowledge of callers count.

use std::time::SystemTime;

use metrics::{Counter, Gauge};

use super::Metrics;

const RELOADS: &str = "weir_tls_reloads_total";
const EXPIRY: &str = "weir_tls_certificate_expiry_timestamp_seconds";
const FAILURES: &str = "weir_tls_handshake_failures_total";
const REVOKED: &str = "weir_tls_connections_revoked_total";
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
pub const GAUGES: &[(&str, &str)] = &[(EXPIRY, "When the certificate of a listener ends.")];

/// Why handshakes fail.
const REASONS: [&str; 5] = ["certificate", "closed", "crowded", "protocol", "timeout"];

/// What an encrypted listener counts.
pub struct TlsMeter {
    failed: [Counter; REASONS.len()],
    /// Connections ended because their certificate is not accepted any more.
    pub revoked: Counter,
    expiry: Gauge,
    reloaded: [Counter; 2],
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
        self.reloaded[usize::from(success)].increment(1);
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

/// How often the file that says who may do what was loaded again, or could not be; shown from the start, so that the first
/// time is seen as an increase.
pub struct AuthReloads([Counter; 2]);

impl AuthReloads {
    /// It was loaded again, or could not be.
    pub fn count(&self, success: bool) {
        self.0[usize::from(success)].increment(1);
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
            reloaded: ["error", "success"].map(reload),
        }
    }

    /// The meter of a listener where callers are known.
    pub fn auth(&self, listener: &str) -> AuthMeter {
        let refused = |reason| self.counter(REFUSED, &[("listener", listener), ("reason", reason)]);
        AuthMeter { unauthenticated: refused("unauthenticated"), denied: refused("permission_denied") }
    }

    /// The meter of the file that says who may do what.
    pub fn auth_reloads(&self) -> AuthReloads {
        AuthReloads(["error", "success"].map(|result| self.counter(AUTH_RELOADS, &[("result", result)])))
    }
}
