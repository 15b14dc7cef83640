//! The removal of ended overrides from the store. It does not block reads: a replica whose removals are slow or fail
//! still gets changes.

use std::time::Instant;

use futures_util::future::join_all;
use tracing::{info, warn};
use weir_store::documents::{Change, ChangeError};
use weir_telemetry::Causes;

use super::{AUDIT, OverrideService};

/// The actor in the log of an override that ended by time.
const BY_TIME: &str = "weir (its end)";
/// Maximum number of overrides that are removed at each poll.
const MAX_REMOVED: usize = 100;
/// Maximum number of concurrent removals.
const MAX_CONCURRENT: usize = 8;

impl OverrideService {
    /// Removes some of the overrides that have ended. A failed removal is retried at the next poll.
    pub(super) async fn remove_ended(&self) {
        if let Err(error) = self.remove_some().await
            && self.removal_warnings.allows(Instant::now())
        {
            let error = Causes(&error);
            warn!(%error, "ended overrides cannot be removed from the store: retried until they are");
        }
    }

    async fn remove_some(&self) -> Result<(), ChangeError> {
        // The clock of this machine may be ahead of the store's.
        let needs_store_read = self.cache.lock().needs_store_read();
        if needs_store_read {
            self.read().await?;
        }
        let ended = self.cache.lock().ended(MAX_REMOVED);
        for some in ended.chunks(MAX_CONCURRENT) {
            let removed = join_all(some.iter().map(|(name, document)| self.remove(name, document))).await;
            removed.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    /// Removes an ended override. The first replica to do so logs its end.
    async fn remove(&self, name: &str, document: &str) -> Result<(), ChangeError> {
        let (name, expected) = (name.to_owned(), Some(document.to_owned()));
        let change = Change { name: name.clone(), document: None, expected, actor: BY_TIME.to_owned() };
        let removed = self.documents.change(change).await?;
        self.cache.lock().forget_ended(&name, document);
        if removed.is_some() {
            info!(target: AUDIT, actor = BY_TIME, before = document, "override ended");
        }
        Ok(())
    }
}
