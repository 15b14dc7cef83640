//! How long connections are good for: until somebody ends them all.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What all connections to one master share. Its clones end together.
#[derive(Clone, Debug, Default)]
pub struct Term(Arc<AtomicBool>);

impl Term {
    /// From now on no connection of this term is used for anything new.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
