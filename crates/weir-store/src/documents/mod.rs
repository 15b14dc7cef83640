//! Documents by name with a log of their changes, for what operators set while the service runs: in the shared store, or in
//! this process and a file.

mod file;
mod memory;
mod redis;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use thiserror::Error;

pub use file::FileError;
pub use memory::MemoryDocuments;
pub use redis::RedisDocuments;

use crate::StoreError;

/// Most documents.
pub const MAX_DOCUMENTS: usize = 200_000;
/// Most changes that are remembered, about; the oldest are forgotten.
pub const MAX_LOG: usize = 100_000;

/// The place of a change in the log: the moment in milliseconds and a number. In the order of the changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeId {
    /// Milliseconds since 1970.
    pub millis: u64,
    /// Among those of one millisecond.
    pub number: u64,
}

/// What is to become of a document.
#[derive(Clone, Debug)]
pub struct Change {
    /// The document's name.
    pub name: String,
    /// It; `None` removes it.
    pub document: Option<String>,
    /// Only where the document is still this one.
    pub expected: Option<String>,
    /// Who changes it.
    pub actor: String,
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its place in the log.
    pub id: ChangeId,
    /// The change before it, if there was any.
    pub previous: Option<ChangeId>,
    /// The document's name.
    pub name: String,
    /// Before the change.
    pub before: Option<String>,
    /// After it.
    pub after: Option<String>,
    /// Who made it.
    pub actor: String,
}

/// What has changed since a place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// These, in their order.
    Some(Vec<Changed>),
    /// The log does not reach back to it: all documents by name, as they were at this place or later.
    All(Vec<(String, String)>, Option<ChangeId>),
}

/// Why a change was not made.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// There are [`MAX_DOCUMENTS`].
    #[error("there are {MAX_DOCUMENTS} already, the most that may be")]
    Full,
    /// The store cannot tell whether it was made.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file cannot be written; nothing has changed.
    #[error("the change cannot be written")]
    File(#[source] std::io::Error),
}

/// Documents and their log.
pub enum Documents {
    /// In this process.
    Memory(Arc<MemoryDocuments>),
    /// In the shared store.
    Redis(RedisDocuments),
}

impl Documents {
    /// Makes a change and logs it, in one step. `None`: the document was not the expected one, or there was none to remove.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn change(&self, change: Change) -> Result<Option<Changed>, ChangeError> {
        match self {
            Self::Memory(memory) => {
                // It waits for the disk.
                let memory = Arc::clone(memory);
                let done = tokio::task::spawn_blocking(move || memory.change(&change)).await;
                done.unwrap_or_else(|error| Err(ChangeError::File(error.into())))
            }
            Self::Redis(redis) => redis.change(change).await,
        }
    }

    /// What has changed since a place in the log, `None`: since nothing was known.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot tell.
    pub async fn changes(&self, since: Option<ChangeId>) -> Result<Changes, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.changes(since)),
            Self::Redis(redis) => redis.changes(since).await,
        }
    }

    /// At most so many changes before a place in the log, or the last ones: the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot tell.
    pub async fn log(&self, before: Option<ChangeId>, most: usize) -> Result<Vec<Changed>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.log(before, most)),
            Self::Redis(redis) => redis.log(before, most).await,
        }
    }
}

impl std::fmt::Display for ChangeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.millis, self.number)
    }
}

impl std::str::FromStr for ChangeId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let (millis, number) = text.split_once('-').ok_or(NotAnId)?;
        let read = |digits: &str| digits.parse().map_err(|_| NotAnId);
        Ok(Self { millis: read(millis)?, number: read(number)? })
    }
}

/// A text that is not a position in the log.
#[derive(Debug, Error)]
#[error("not a place in the log")]
pub struct NotAnId;
