//! The store of a service: which one, the settings say.

use std::{io, path::Path, sync::Arc};

use super::{
    Decide, MemoryStore, ResetDone, Store, StoreError, StoreSettings, StoreUrl, SystemClock, Verdict,
    redis::RedisStore, shared::SharedStore,
};
use weir_core::{
    domain::{Clock, Key},
    hold::{Grant, Renewal},
    plan::Plan,
};
use weir_telemetry::{Registry, Render};

use crate::{
    documents::{Documents, FileError, MemoryDocuments},
    metrics::StoreMeter,
    scan::{Held, Page, Scan, ScanError},
};

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
        registry: &Arc<Registry>,
    ) -> io::Result<Self> {
        match &settings.url {
            StoreUrl::Memory => Ok(Self::Memory(memory)),
            StoreUrl::Redis(url) => {
                let meter = Arc::<StoreMeter>::default();
                registry.add(Arc::clone(&meter) as Arc<dyn Render>);
                let redis = RedisStore::start(url, &settings.redis, None, meter)?;
                let shared = SharedStore::new(redis, memory, settings, Arc::clone(registry));
                Ok(Self::Shared(Box::new(shared)))
            }
        }
    }

    /// This process's own store: all counts, or those made while the shared store failed.
    pub fn memory(&self) -> &MemoryStore<SystemClock> {
        match self {
            Self::Memory(memory) => memory,
            Self::Shared(shared) => shared.local(),
        }
    }

    /// A page of what is stored; of a shared store what all replicas have stored there.
    ///
    /// # Errors
    /// [`ScanError`]. The same page can be asked for again.
    pub async fn scan(&self, scan: &Scan, cursor: Option<&[u8]>) -> Result<Page, ScanError> {
        match self {
            Self::Memory(memory) => memory.scan(scan, cursor).await,
            Self::Shared(shared) => shared.redis().scan(scan, cursor).await,
        }
    }

    /// Decides a plan by what is stored: nothing stands in for a store that does not answer, and no lease is spent.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stored_verdict(&self, plan: &Plan<'_>) -> Result<Verdict, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.verdict(plan)),
            Self::Shared(shared) => shared.redis().verdict(plan).await.map_err(|undecided| undecided.failure.into()),
        }
    }

    /// Units held of each level of a plan.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn holds(&self, plan: &Plan<'_>) -> Result<Vec<Vec<Held>>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.holds(plan)),
            Self::Shared(shared) => shared.redis().holds(plan).await,
        }
    }

    /// The clock by which it decides, or about that of its servers.
    pub fn clock(&self) -> Arc<dyn Clock> {
        match self {
            Self::Memory(memory) => Arc::new(memory.clock()),
            Self::Shared(shared) => shared.redis().clock(),
        }
    }

    /// Documents of this name, in the shared store, or else in this process and in `file` where there is one.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be used.
    pub fn documents(&self, name: &str, file: Option<&Path>) -> Result<Documents, FileError> {
        match (self, file) {
            (Self::Shared(shared), _) => Ok(Documents::Redis(shared.redis().documents(name))),
            (Self::Memory(_), None) => Ok(Documents::Memory(Arc::new(MemoryDocuments::new(self.clock())))),
            (Self::Memory(_), Some(file)) => {
                Ok(Documents::Memory(Arc::new(MemoryDocuments::open(file, self.clock())?)))
            }
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

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, StoreError> {
        match self {
            Self::Memory(memory) => memory.reset(key, anchor, subtree).await,
            Self::Shared(shared) => shared.reset(key, anchor, subtree).await,
        }
    }

    async fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Grant, StoreError> {
        match self {
            Self::Memory(memory) => memory.renew(plan, renewal).await,
            Self::Shared(shared) => shared.renew(plan, renewal).await,
        }
    }
}
