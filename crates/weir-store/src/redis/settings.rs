//! How Redis or Valkey is reached, and what a check may take there.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::outage_charges::OutageChargesSettings;
pub use weir_settings::tls::TlsSettings;
use weir_settings::{Secret, Time};

/// Settings of a shared store. A text or a path that is empty is not set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisSettings {
    /// The user; stands above the URL's.
    pub username: String,
    /// The password; stands above the URL's.
    pub password: Secret,
    /// A file that holds the password, read for each new connection.
    pub password_file: PathBuf,
    /// The prefix of every key, at most 128 bytes.
    pub key_prefix: String,
    /// Connections to each server.
    pub pool_size: usize,
    /// How long making a connection may take, from the name's resolution to the script's load.
    pub connect_timeout: Time,
    /// How long a check may take in the store, waiting included.
    pub command_timeout: Time,
    /// Most checks that wait for one connection.
    pub max_queue: usize,
    /// Most checks that share one call of the script.
    pub max_batch: usize,
    /// Replicas that must have a charge before its check is answered; 0: none.
    pub wait_replicas: u32,
    /// Whether units that were admitted without the store are charged to it afterwards.
    pub charge_after_outage: OutageChargesSettings,
    /// Whether this service says that it is not ready while a server is not asked.
    pub required_for_readiness: bool,
    /// How connections are encrypted.
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

/// Credentials for Sentinels, which have users of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SentinelSettings {
    /// The user.
    pub username: String,
    /// The password.
    pub password: Secret,
    /// A file that holds the password, read for each new connection.
    pub password_file: PathBuf,
}
