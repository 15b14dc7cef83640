//! The configured store: memory, or a shared store with its local fallback.

use std::{io, path::Path, sync::Arc};

use super::{
    Decide, Failure, MemoryStore, ResetDone, Store, StoreSettings, StoreUrl, SystemClock, Verdict, redis::RedisStore,
    shared::SharedStore,
};
use weir_core::{
    domain::{Clock, Key},
    hold::{Grant, Renewal},
    plan::Plan,
};
use weir_telemetry::{Registry, Render};

use crate::{
    documents::{Documents, FileError, MemoryDocuments},
    metrics::StoreMetrics,
    scan::{Hold, Page, Scan, ScanError},
};

/// The store that the settings select.
pub enum AnyStore {
    /// In this process.
    Memory(MemoryStore<SystemClock>),
    /// Shared by replicas.
    Shared(Box<SharedStore>),
}

impl AnyStore {
    /// Starts the store of these settings: `memory`, or a shared store with `memory` as the fallback for outages. The
    /// shared store need not be reachable yet.
    ///
    /// # Errors
    /// When the operating system cannot start a thread.
    pub fn start(
        memory: MemoryStore<SystemClock>,
        settings: &StoreSettings,
        registry: &Arc<Registry>,
    ) -> io::Result<Self> {
        match &settings.url {
            StoreUrl::Memory => Ok(Self::Memory(memory)),
            StoreUrl::Redis(url) => {
                let metrics = Arc::new(StoreMetrics::new(registry));
                registry.add(Arc::clone(&metrics) as Arc<dyn Render>);
                let redis = RedisStore::start(url, &settings.redis, None, metrics)?;
                let shared = SharedStore::new(redis, memory, settings, Arc::clone(registry));
                Ok(Self::Shared(Box::new(shared)))
            }
        }
    }

    /// Returns this process's own store: with all counts, or those made during outages of the shared store.
    pub fn memory(&self) -> &MemoryStore<SystemClock> {
        match self {
            Self::Memory(memory) => memory,
            Self::Shared(shared) => shared.local(),
        }
    }

    /// Reads a page of the stored states; of a shared store, the states of all replicas.
    ///
    /// # Errors
    /// [`ScanError`]. The same page can be requested again.
    pub async fn scan(&self, scan: &Scan, cursor: Option<&[u8]>) -> Result<Page, ScanError> {
        match self {
            Self::Memory(memory) => memory.scan(scan, cursor).await,
            Self::Shared(shared) => shared.redis().scan(scan, cursor).await,
        }
    }

    /// Decides a plan by the stored states alone, without fallback and without spending leases.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn stored_verdict(&self, plan: &Plan<'_>) -> Result<Verdict, Failure> {
        match self {
            Self::Memory(memory) => Ok(memory.verdict(plan)),
            Self::Shared(shared) => shared.redis().verdict(plan).await.map_err(|undecided| undecided.failure),
        }
    }

    /// Returns the holds on each level of a plan.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn holds(&self, plan: &Plan<'_>) -> Result<Vec<Vec<Hold>>, Failure> {
        match self {
            Self::Memory(memory) => Ok(memory.holds(plan)),
            Self::Shared(shared) => shared.redis().holds(plan).await,
        }
    }

    /// Returns the clock that decisions use; for a shared store, an estimate of its servers' clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        match self {
            Self::Memory(memory) => Arc::new(memory.clock()),
            Self::Shared(shared) => shared.redis().clock(),
        }
    }

    /// Opens the named documents, in the shared store, or else in memory and, if given, in `file`.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be used.
    pub fn documents(&self, name: &str, file: Option<&Path>) -> Result<Documents, FileError> {
        match (self, file) {
            (Self::Shared(shared), _) => Ok(shared.redis().documents(name)),
            (Self::Memory(_), None) => Ok(Documents::Memory(Arc::new(MemoryDocuments::new(self.clock())))),
            (Self::Memory(_), Some(file)) => {
                Ok(Documents::Memory(Arc::new(MemoryDocuments::open(file, self.clock())?)))
            }
        }
    }

    /// Returns the shared store, if configured.
    pub fn shared(&self) -> Option<&SharedStore> {
        match self {
            Self::Memory(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }
}

impl Store for AnyStore {
    #[inline]
    fn decide<'s, 'v>(&'s self, plan: &Plan<'_>, verdict: &'v mut Verdict) -> Decide<'s, 'v> {
        match self {
            Self::Memory(memory) => memory.decide(plan, verdict),
            Self::Shared(shared) => match shared.leased(plan) {
                Some(leased) => {
                    *verdict = leased;
                    Decide::Ready(verdict)
                }
                None => Decide::Waiting(&**shared),
            },
        }
    }

    fn decides_in_one_step(&self, plan: &Plan<'_>) -> bool {
        self.shared().is_none_or(|shared| shared.redis().decides_in_one_step(plan))
    }

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, Failure> {
        match self {
            Self::Memory(memory) => memory.reset(key, anchor, subtree).await,
            Self::Shared(shared) => shared.reset(key, anchor, subtree).await,
        }
    }

    async fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Grant, Failure> {
        match self {
            Self::Memory(memory) => memory.renew(plan, renewal).await,
            Self::Shared(shared) => shared.renew(plan, renewal).await,
        }
    }
}
