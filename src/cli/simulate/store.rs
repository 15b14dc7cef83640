//! The store of a simulation, in virtual time.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};
use weir_core::domain::{ManualClock, time::SECOND};
use weir_settings::Time;
use weir_store::{
    MemoryStore,
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

/// The keys that a simulation leaves in a shared store, and how to delete them.
pub(super) struct Leftovers {
    /// Describes them.
    pub text: String,
    /// Deletes them; the store must live until then.
    pub deletion: BoxFuture<'static, Result<usize, weir_store::Failure>>,
}

/// Creates a store in memory.
pub(super) fn in_memory(clock: &Arc<ManualClock>) -> MemoryStore<Arc<ManualClock>> {
    let settings = MemorySettings { max_keys: MAX_KEYS, ..MemorySettings::default() };
    MemoryStore::new(settings, Arc::clone(clock))
}

/// Connects to a store in Redis, under a random prefix.
///
/// # Errors
/// The server cannot be used.
pub(super) async fn open_redis(
    url: &RedisUrl,
    settings: &RedisSettings,
    clock: &Arc<ManualClock>,
) -> Result<(RedisStore, Leftovers), Failure> {
    let settings = alone(settings.clone());
    let store = RedisStore::start(url, &settings, Some(Arc::clone(clock) as _), Arc::default())?;
    let reached = store.reach(settings.connect_timeout.duration()).await;
    reached.map_err(|error| format!("cannot use {url}: {}", Causes(&error)))?;
    let prefix = settings.key_prefix;
    let text = format!("keys that begin with {prefix} may be left in {url} until they expire");
    let deletion = store.clear().boxed();
    Ok((store, Leftovers { text, deletion }))
}

/// Returns the settings of a store for one simulation only.
fn alone(redis: RedisSettings) -> RedisSettings {
    let key_prefix = format!("{}simulate:{:032x}:", redis.key_prefix, rand::random::<u128>());
    let command_timeout = Time(redis.command_timeout.0.max(LEAST_COMMAND_TIMEOUT.0));
    RedisSettings { key_prefix, command_timeout, ..redis }
}
