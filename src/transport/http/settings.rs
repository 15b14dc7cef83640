//! The HTTP port's settings.

use serde::{Deserialize, Serialize};
use weir_server::{Listen, Traffic, tls::ListenerTls};
use weir_settings::Time;

use crate::{telemetry::Traffic as RecentTraffic, transport::headers::HeaderStyle};

/// The HTTP port's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Where to listen.
    pub listen: Listen,
    /// Serving threads for checks; 0: one for each core.
    pub workers: usize,
    /// Most connections; beyond it the oldest one without a request is evicted, else the new one is closed.
    pub max_connections: usize,
    /// Longest lifetime of a connection, with a jitter of a tenth; 0: none.
    pub max_connection_age: Time,
    /// Grace period for its open calls then.
    pub max_connection_age_grace: Time,
    /// Idle timeout of a connection after its first request; 0: none.
    pub idle_timeout: Time,
    /// Most requests of one connection a second; 0: no bound.
    pub max_requests_per_second: u32,
    /// Most decisions that wait for a shared store at once; 0: by the store's queue.
    pub max_concurrent_requests: usize,
    /// The style of the rate-limit headers.
    pub headers: HeaderStyle,
    /// The explorer page.
    pub ui: UiSettings,
    /// TLS, and which clients may connect.
    pub tls: ListenerTls,
}

/// The explorer page's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UiSettings {
    /// Whether there is one.
    pub enabled: bool,
    /// Host names by which it may be opened over plain HTTP, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Most hot keys that are tracked, and as many near their limits.
    pub max_hot_keys: usize,
    /// Most bytes of the record of the last minutes' checks; 0: there is none.
    pub max_traffic_bytes: usize,
}

impl UiSettings {
    /// The record of the last minutes' checks, where one is wanted.
    pub fn traffic(&self) -> Option<RecentTraffic> {
        (self.max_traffic_bytes > 0).then(|| RecentTraffic::new(self.max_traffic_bytes))
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
    /// The bounds on connections in time and on requests in number.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            max_connection_age: self.max_connection_age,
            max_connection_age_grace: self.max_connection_age_grace,
            idle_timeout: self.idle_timeout,
            max_requests_per_second: self.max_requests_per_second,
        }
    }
}
