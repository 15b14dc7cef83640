//! Floor 4, stores: where states live, and what decides a plan over them in one step.

pub mod clock;
pub mod memory;
pub mod settings;

use thiserror::Error;

use crate::{
    domain::Key,
    plan::{Decisions, Plan},
};

pub use clock::SystemClock;
pub use memory::MemoryStore;
pub use settings::{StoreSettings, StoreUrl};

/// Keeps states and decides plans over them.
pub trait Store: Send + Sync + 'static {
    /// Decides a plan: all its levels at one moment of the store's clock, in one step.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot tell. A refusal is no error.
    fn decide(&self, plan: &Plan<'_>) -> impl Future<Output = Result<Decisions, StoreError>> + Send;

    /// Forgets every state of exactly this key, and with `subtree` of all keys below it. `anchor` is its domain's. Tells
    /// whether the key itself had a state that still meant something.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot tell.
    fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Why a store could not answer.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store cannot be reached or did not answer in time.
    #[error("the store does not answer")]
    Unavailable,
}
