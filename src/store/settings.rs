//! Which store, and its bounds.

use serde::{Deserialize, Serialize};

use super::{memory::MemorySettings, near::NearCacheSettings, redis::settings::RedisSettings, url::StoreUrl};

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
    /// Whether refusals of Redis or Valkey are remembered here for a moment.
    pub near_cache: NearCacheSettings,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            url: StoreUrl::Memory,
            max_keys: MemorySettings::default().max_keys,
            redis: RedisSettings::default(),
            near_cache: NearCacheSettings::default(),
        }
    }
}
