//! The store of a service: which one, the settings say.

use std::{io, sync::Arc};

use super::{
    Decide, MemoryStore, ResetDone, Store, StoreError, StoreSettings, StoreUrl, SystemClock, redis::RedisStore,
    shared::SharedStore,
};
use crate::{domain::Key, plan::Plan, telemetry::Metrics};

/// A store by settings.
pub enum AnyStore {
    /// In this process.
    Memory(MemoryStore<SystemClock>),
    /// Shared by replicas.
    Shared(Box<SharedStore>),
}

impl AnyStore {
    /// The store of these settings: `memory`, or a shared one that has it for when it fails. It need not be reachable yet.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(
        memory: MemoryStore<SystemClock>,
        settings: &StoreSettings,
        metrics: &Arc<Metrics>,
    ) -> io::Result<Self> {
        match &settings.url {
            StoreUrl::Memory => Ok(Self::Memory(memory)),
            StoreUrl::Redis(url) => {
                let redis = RedisStore::start(url, &settings.redis, None, metrics.shared_store())?;
                let shared = SharedStore::new(redis, memory, &settings.near_cache, Arc::clone(metrics));
                Ok(Self::Shared(Box::new(shared)))
            }
        }
    }

    /// What this process keeps: all, or what it counted while the shared store failed.
    pub fn memory(&self) -> &MemoryStore<SystemClock> {
        match self {
            Self::Memory(memory) => memory,
            Self::Shared(shared) => shared.local(),
        }
    }

    /// The shared store, if this is one.
    pub fn shared(&self) -> Option<&SharedStore> {
        match self {
            Self::Memory(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }
}

impl Store for AnyStore {
    #[inline]
    fn decide(&self, plan: &Plan<'_>) -> Decide<'_> {
        match self {
            Self::Memory(memory) => memory.decide(plan),
            Self::Shared(shared) => Decide::Waiting(&**shared),
        }
    }

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, StoreError> {
        match self {
            Self::Memory(memory) => memory.reset(key, anchor, subtree).await,
            Self::Shared(shared) => shared.reset(key, anchor, subtree).await,
        }
    }
}
