//! Settings of the connections to Redis or Valkey, and of the timeouts and bounds of checks.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::outage_charges::OutageChargesSettings;
pub use weir_settings::tls::TlsSettings;
use weir_settings::{Secret, Time};

/// Settings of a shared store. An empty text or path is unset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisSettings {
    /// The user; overrides the URL's.
    pub username: String,
    /// The password; overrides the URL's.
    pub password: Secret,
    /// A file with the password, read for each new connection.
    pub password_file: PathBuf,
    /// The prefix of all Redis keys, at most 128 bytes.
    pub key_prefix: String,
    /// Number of connections to each server for checks.
    pub pool_size: usize,
    /// Timeout of opening a connection, from name resolution to loading the script.
    pub connect_timeout: Time,
    /// Timeout of a check in the store, including its time in the queue.
    pub command_timeout: Time,
    /// Most checks queued for one connection.
    pub max_queue: usize,
    /// Most checks in one script call.
    pub max_batch: usize,
    /// Replicas that must acknowledge a charge before its check is answered; 0: none.
    pub wait_replicas: u32,
    /// Whether units admitted during an outage are charged afterwards.
    pub charge_after_outage: OutageChargesSettings,
    /// Whether readiness fails while a server's circuit breaker is open.
    pub required_for_readiness: bool,
    /// TLS of the connections.
    pub tls: TlsSettings,
    /// Credentials for Sentinels.
    pub sentinel: SentinelSettings,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            username: String::new(),
            password: Secret::default(),
            password_file: PathBuf::new(),
            key_prefix: "weir:".to_owned(),
            pool_size: 2,
            connect_timeout: Time::seconds(1),
            command_timeout: Time(100_000),
            max_queue: 10_000,
            max_batch: 64,
            wait_replicas: 0,
            charge_after_outage: OutageChargesSettings::default(),
            required_for_readiness: false,
            tls: TlsSettings::default(),
            sentinel: SentinelSettings::default(),
        }
    }
}

/// Credentials for Sentinels, whose users are separate from the servers'.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SentinelSettings {
    /// The user.
    pub username: String,
    /// The password.
    pub password: Secret,
    /// A file with the password, read for each new connection.
    pub password_file: PathBuf,
}
