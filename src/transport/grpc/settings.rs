//! The gRPC port's settings.

use serde::{Deserialize, Serialize};
use weir_server::{Listen, RuntimeKind, Traffic, tls::ListenerTls};
use weir_settings::Time;

/// The gRPC port's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GrpcSettings {
    /// Where to listen.
    pub listen: Listen,
    /// Serving threads; 0: one for each core.
    pub workers: usize,
    /// How they share connections.
    pub runtime: RuntimeKind,
    /// Most connections; a further one is closed, or the oldest that has not asked anything yet.
    pub max_connections: usize,
    /// Most concurrent calls of one connection.
    pub max_streams: u32,
    /// How old a connection gets, a tenth more or less; 0: no bound.
    pub max_connection_age: Time,
    /// How long what is under way on it may take then.
    pub max_connection_age_grace: Time,
    /// How long a connection that has asked something may ask nothing more; 0: no bound.
    pub idle_timeout: Time,
    /// Most requests of one connection a second; 0: no bound.
    pub max_requests_per_second: u32,
    /// Most decisions that wait for a shared store at once; 0: as many as the store is good for.
    pub max_concurrent_requests: usize,
    /// Most streams of checks that are open at once.
    pub max_open_streams: usize,
    /// How long the message of a call may take to come.
    pub message_timeout: Time,
    /// Largest message that is read.
    pub max_message_bytes: usize,
    /// How it is encrypted, and who may connect.
    pub tls: ListenerTls,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        let traffic = Traffic::default();
        Self {
            listen: Listen::loopback(8081),
            workers: 0,
            runtime: RuntimeKind::default(),
            max_connections: 10_000,
            max_streams: 256,
            max_connection_age: traffic.max_connection_age,
            max_connection_age_grace: traffic.max_connection_age_grace,
            idle_timeout: traffic.idle_timeout,
            max_requests_per_second: traffic.max_requests_per_second,
            max_concurrent_requests: 0,
            max_open_streams: 10_000,
            message_timeout: Time::seconds(10),
            max_message_bytes: 1 << 20,
            tls: ListenerTls::default(),
        }
    }
}

impl GrpcSettings {
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
