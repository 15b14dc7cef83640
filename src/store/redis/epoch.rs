//! The epoch of connections to a master: it ends when another master takes its place.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Shared by connections to one master. All its clones end together.
#[derive(Clone, Debug, Default)]
pub struct ConnectionEpoch(Arc<AtomicBool>);

impl ConnectionEpoch {
    /// From now on no connection of this epoch is used for anything new.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether both end together.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it has clones, that is, connections.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
