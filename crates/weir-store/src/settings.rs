//! Which store, and its bounds.

use serde::{Deserialize, Serialize};

use super::{
    memory::{MemorySettings, WhenFull, snapshot::SnapshotSettings},
    near::NearCacheSettings,
    redis::settings::RedisSettings,
    url::StoreUrl,
};

/// The store's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// Where counts live.
    pub url: StoreUrl,
    /// Most states in memory: one for each limit and actual key.
    pub max_keys: usize,
    /// How Redis or Valkey is reached.
    pub redis: RedisSettings,
    /// The rule for requests beyond that.
    pub when_full: WhenFull,
    /// The file that outlives this process.
    pub snapshot: SnapshotSettings,
    /// Whether refusals of Redis or Valkey are remembered here for a moment.
    pub near_cache: NearCacheSettings,
}

impl StoreSettings {
    /// The memory store's settings.
    pub fn memory(&self) -> MemorySettings {
        MemorySettings { max_keys: self.max_keys, when_full: self.when_full }
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        let MemorySettings { max_keys, when_full } = MemorySettings::default();
        let (snapshot, redis, near_cache) = Default::default();
        Self { url: StoreUrl::Memory, max_keys, when_full, snapshot, redis, near_cache }
    }
}
