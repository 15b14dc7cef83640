//! Named documents with a change log, which operators set at run time: in the shared store, or in this process and a
//! file.

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

use crate::Failure;

/// Most documents.
pub const MAX_DOCUMENTS: usize = 200_000;
/// Approximate maximum of logged changes; the oldest are dropped.
pub const MAX_LOG: usize = 100_000;

/// The position of a change in the log: a time and a sequence number, ordered like the changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeId {
    /// Milliseconds since 1970.
    pub millis: u64,
    /// Sequence number within the millisecond.
    pub number: u64,
}

/// A requested change of a document.
#[derive(Clone, Debug)]
pub struct Change {
    /// The document's name.
    pub name: String,
    /// The new content; `None` removes the document.
    pub document: Option<String>,
    /// If set, the change is made only if this is the current content (compare-and-swap).
    pub expected: Option<String>,
    /// The operator who makes the change.
    pub actor: String,
}

/// A change in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its position in the log.
    pub id: ChangeId,
    /// The position of the preceding change, if any.
    pub previous: Option<ChangeId>,
    /// The document's name.
    pub name: String,
    /// The content before the change.
    pub before: Option<String>,
    /// The content after the change.
    pub after: Option<String>,
    /// The operator who made the change.
    pub actor: String,
}

/// The changes since a position in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// The changes, in order.
    Some(Vec<Changed>),
    /// The log does not reach back that far.
    All {
        /// All documents by name, at `since` or later.
        documents: Vec<(String, String)>,
        /// The position of the last change.
        since: Option<ChangeId>,
        /// Whether the store has lost the position, and so perhaps documents.
        is_lost: bool,
    },
}

/// Why a change failed.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// There are [`MAX_DOCUMENTS`].
    #[error("there are {MAX_DOCUMENTS} documents, the maximum")]
    Full,
    /// It is unknown whether the store made the change.
    #[error(transparent)]
    Store(#[from] Failure),
    /// The file cannot be written; nothing has changed.
    #[error("the change cannot be written")]
    File(#[source] std::io::Error),
}

/// Named documents and their change log.
pub enum Documents {
    /// In this process.
    Memory(Arc<MemoryDocuments>),
    /// In the shared store.
    Redis(RedisDocuments),
}

impl Documents {
    /// Makes and logs a change in one atomic step. Returns `None` if the document differed from the expected one, or
    /// there was none to remove.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn change(&self, change: Change) -> Result<Option<Changed>, ChangeError> {
        match self {
            Self::Memory(memory) => {
                // It waits for the disk, which must not block the runtime.
                let memory = Arc::clone(memory);
                let done = tokio::task::spawn_blocking(move || memory.change(&change)).await;
                done.unwrap_or_else(|error| Err(ChangeError::File(error.into())))
            }
            Self::Redis(redis) => redis.change(change).await,
        }
    }

    /// Returns the changes since a position in the log (`None`: the position of an empty log), or all documents if the
    /// log does not reach back to it, as to the default one.
    ///
    /// # Errors
    /// [`Failure`] when the store has no answer.
    pub async fn changes(&self, since: Option<ChangeId>) -> Result<Changes, Failure> {
        match self {
            Self::Memory(memory) => Ok(memory.changes(since)),
            Self::Redis(redis) => redis.changes(since).await,
        }
    }

    /// Returns up to `most` changes before a position in the log, or up to its end, newest first.
    ///
    /// # Errors
    /// [`Failure`] when the store has no answer.
    pub async fn log(&self, before: Option<ChangeId>, most: usize) -> Result<Vec<Changed>, Failure> {
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
