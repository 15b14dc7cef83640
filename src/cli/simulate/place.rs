//! Where the counts of a story live: a store of its own, in virtual time.

use std::sync::Arc;

use weir_core::{
    domain::{Key, ManualClock, time::SECOND},
    plan::Plan,
};
use weir_settings::Time;
use weir_store::{
    Decide, MemoryStore, ResetDone, Store, StoreError,
    memory::MemorySettings,
    redis::{RedisStore, settings::RedisSettings},
    url::RedisUrl,
};

use super::Failure;

/// Most states of a story in memory: beyond what memory holds, so that no refusal is the store's.
const MAX_KEYS: usize = 1 << 32;

/// The least that a decision in Redis may take: a person waits for it, and nobody else.
const LEAST_COMMAND_TIMEOUT: Time = Time(5 * SECOND);

/// A store for one story.
pub trait Place: Store {
    /// Leaves it as it was found.
    ///
    /// # Errors
    /// Why that is not certain.
    async fn leave(&self) -> Result<(), String>;

    /// What remains if it is not left so.
    fn left_behind(&self) -> String;
}

/// A place in memory.
pub fn in_memory(clock: &Arc<ManualClock>) -> MemoryStore<Arc<ManualClock>> {
    let settings = MemorySettings { max_keys: MAX_KEYS, ..MemorySettings::default() };
    MemoryStore::new(settings, Arc::clone(clock))
}

impl Place for MemoryStore<Arc<ManualClock>> {
    async fn leave(&self) -> Result<(), String> {
        Ok(())
    }

    fn left_behind(&self) -> String {
        String::new()
    }
}

/// A place in Redis, under a prefix of its own.
pub struct InRedis {
    store: RedisStore,
    left_behind: String,
}

impl InRedis {
    /// # Errors
    /// The server cannot be used, and why.
    pub async fn open(url: &RedisUrl, settings: &RedisSettings, clock: &Arc<ManualClock>) -> Result<Self, Failure> {
        let settings = alone(settings.clone());
        let store = RedisStore::start(url, &settings, Some(Arc::clone(clock) as _), Arc::default())?;
        let reached = store.reach(settings.connect_timeout.duration()).await;
        reached.map_err(|error| format!("cannot use {url}: {}", in_full(&error)))?;
        let prefix = settings.key_prefix;
        let left_behind = format!("keys that begin with {prefix} may be left in {url} until they expire");
        Ok(Self { store, left_behind })
    }
}

/// The settings of a store that holds one story and nothing else.
fn alone(redis: RedisSettings) -> RedisSettings {
    let key_prefix = format!("{}simulate:{:032x}:", redis.key_prefix, rand::random::<u128>());
    let command_timeout = Time(redis.command_timeout.0.max(LEAST_COMMAND_TIMEOUT.0));
    RedisSettings { key_prefix, command_timeout, ..redis }
}

impl Place for InRedis {
    async fn leave(&self) -> Result<(), String> {
        self.store.clear().await.map(drop).map_err(|error| in_full(&error))
    }

    fn left_behind(&self) -> String {
        self.left_behind.clone()
    }
}

impl Store for InRedis {
    fn decide(&self, plan: &Plan<'_>) -> Decide<'_> {
        self.store.decide(plan)
    }

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, StoreError> {
        self.store.reset(key, anchor, subtree).await
    }
}

/// Why a store has no answer, with the cause.
pub fn in_full(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
