//! The store of a simulation, in virtual time.

use std::sync::Arc;

use weir_core::domain::{ManualClock, time::SECOND};
use weir_settings::Time;
use weir_store::{
    MemoryStore, Store,
    memory::MemorySettings,
    redis::{RedisStore, settings::RedisSettings},
    url::RedisUrl,
};
use weir_telemetry::Causes;

use super::Failure;

/// Maximum number of states: more than fit into memory, so that the store itself never refuses.
const MAX_KEYS: usize = 1 << 32;

/// Minimum command timeout in Redis, as only an operator waits for the result.
const LEAST_COMMAND_TIMEOUT: Time = Time(5 * SECOND);

/// A store for one simulation.
pub(super) trait SimulationStore: Store {
    /// Deletes everything that the simulation stored.
    ///
    /// # Errors
    /// The reason why something may remain.
    async fn clean_up(&self) -> Result<(), String>;
}

/// Creates a store in memory.
pub(super) fn in_memory(clock: &Arc<ManualClock>) -> MemoryStore<Arc<ManualClock>> {
    let settings = MemorySettings { max_keys: MAX_KEYS, ..MemorySettings::default() };
    MemoryStore::new(settings, Arc::clone(clock))
}

impl SimulationStore for MemoryStore<Arc<ManualClock>> {
    async fn clean_up(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Connects to a store in Redis, under a random prefix; also returns what remains in it without the clean-up.
///
/// # Errors
/// The server cannot be used.
pub(super) async fn open_redis(
    url: &RedisUrl,
    settings: &RedisSettings,
    clock: &Arc<ManualClock>,
) -> Result<(RedisStore, String), Failure> {
    let settings = alone(settings.clone());
    let store = RedisStore::start(url, &settings, Some(Arc::clone(clock) as _), Arc::default())?;
    let reached = store.reach(settings.connect_timeout.duration()).await;
    reached.map_err(|error| format!("cannot use {url}: {}", Causes(&error)))?;
    let prefix = settings.key_prefix;
    Ok((store, format!("keys that begin with {prefix} may be left in {url} until they expire")))
}

/// Returns the settings of a store for one simulation only.
fn alone(redis: RedisSettings) -> RedisSettings {
    let key_prefix = format!("{}simulate:{:032x}:", redis.key_prefix, rand::random::<u128>());
    let command_timeout = Time(redis.command_timeout.0.max(LEAST_COMMAND_TIMEOUT.0));
    RedisSettings { key_prefix, command_timeout, ..redis }
}

impl SimulationStore for RedisStore {
    async fn clean_up(&self) -> Result<(), String> {
        self.clear().await.map(drop).map_err(|error| Causes(&error).to_string())
    }
}
