//! The HTTP port's settings.

use serde::{Deserialize, Serialize};
use weir_server::{Listen, Traffic, tls::ListenerTls};
use weir_settings::Time;

use crate::{telemetry::RecentChecks, transport::headers::HeaderStyle};

/// The HTTP port's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// The address to listen on.
    pub listen: Listen,
    /// Serving threads for checks; 0: one for each core.
    pub workers: usize,
    /// Maximum number of connections. Beyond it one whose client has not authenticated, or else an idle one, is evicted;
    /// if there is none, the new one is closed.
    pub max_connections: usize,
    /// Maximum age of a connection, with a jitter of a tenth; 0: unlimited.
    pub max_connection_age: Time,
    /// Grace period for the open calls of a connection at its maximum age.
    pub max_connection_age_grace: Time,
    /// Idle timeout of a connection after its first request; 0: none.
    pub idle_timeout: Time,
    /// Maximum number of requests per second of a connection; 0: unlimited.
    pub max_requests_per_second: u32,
    /// Maximum number of decisions that wait for a shared store; 0: bounded by the store's queue.
    pub max_concurrent_requests: usize,
    /// The style of the rate-limit headers.
    pub headers: HeaderStyle,
    /// The explorer page.
    pub ui: UiSettings,
    /// TLS, and the clients that may connect.
    pub tls: ListenerTls,
}

/// The explorer page's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UiSettings {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Host names under which it may be opened over plain HTTP, in addition to IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Maximum number of hot keys that are tracked, and of keys near their limits.
    pub max_hot_keys: usize,
    /// Maximum size of the recording of the last minutes' checks, in bytes; 0: no recording.
    pub max_traffic_bytes: usize,
}

impl UiSettings {
    /// Returns an empty recording of the last minutes' checks, if it is enabled.
    pub fn recent_checks(&self) -> Option<RecentChecks> {
        (self.max_traffic_bytes > 0).then(|| RecentChecks::new(self.max_traffic_bytes))
    }
}

impl Default for UiSettings {
    fn default() -> Self {
        Self { enabled: false, hosts: Vec::new(), max_hot_keys: 500, max_traffic_bytes: 4 << 20 }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        let traffic = Traffic::default();
        Self {
            listen: Listen::loopback(8080),
            workers: 0,
            max_connections: 1_000,
            max_connection_age: traffic.max_connection_age,
            max_connection_age_grace: traffic.max_connection_age_grace,
            idle_timeout: traffic.idle_timeout,
            max_requests_per_second: traffic.max_requests_per_second,
            max_concurrent_requests: 0,
            headers: HeaderStyle::default(),
            ui: UiSettings::default(),
            tls: ListenerTls::default(),
        }
    }
}

impl HttpSettings {
    /// Returns the bounds on the age, the idle time and the request rate of connections.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            max_connection_age: self.max_connection_age,
            max_connection_age_grace: self.max_connection_age_grace,
            idle_timeout: self.idle_timeout,
            max_requests_per_second: self.max_requests_per_second,
        }
    }
}
