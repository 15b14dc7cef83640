//! Settings of the store.

use serde::{Deserialize, Serialize};

use super::{
    memory::{MemorySettings, WhenFull, snapshot::SnapshotSettings},
    near_cache::NearCacheSettings,
    redis::settings::RedisSettings,
    url::StoreUrl,
};

/// Settings of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// Location of the states.
    pub url: StoreUrl,
    /// Most states in memory: one for each limit and actual key.
    pub max_keys: usize,
    /// Connection to Redis or Valkey.
    pub redis: RedisSettings,
    /// Behavior once `max_keys` is reached.
    pub when_full: WhenFull,
    /// Snapshot file that preserves the memory store over restarts.
    pub snapshot: SnapshotSettings,
    /// Near cache for refusals by Redis or Valkey.
    pub near_cache: NearCacheSettings,
}

impl StoreSettings {
    /// Returns the settings of the memory store.
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
