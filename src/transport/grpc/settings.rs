//! The gRPC port's settings.

use serde::{Deserialize, Serialize};
use weir_server::{Listen, RuntimeKind, Traffic, tls::ListenerTls};
use weir_settings::Time;

/// The gRPC port's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GrpcSettings {
    /// The address to listen on.
    pub listen: Listen,
    /// Serving threads; 0: one for each core.
    pub workers: usize,
    /// Whether a connection stays on one serving thread, or any thread may run its calls.
    pub runtime: RuntimeKind,
    /// Maximum number of connections. Beyond it one whose client has not authenticated, or else an idle one, is evicted;
    /// if there is none, the new one is closed.
    pub max_connections: usize,
    /// Maximum number of concurrent calls of a connection.
    pub max_streams: u32,
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
    /// Maximum number of open streams: of checks, of leases and of RLQS together.
    pub max_open_streams: usize,
    /// Timeout for receiving the message of a call.
    pub message_timeout: Time,
    /// Maximum size of a message.
    pub max_message_bytes: usize,
    /// TLS, and the clients that may connect.
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
