//! The signal that ends a load.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

/// The stop signal. No call starts once it is set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// Read before each call; cheaper than the token.
    is_set: Arc<AtomicBool>,
    token: CancellationToken,
}

impl Stop {
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
        self.token.cancel();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Waits until it is set.
    pub(crate) async fn wait(&self) {
        self.token.cancelled().await;
    }
}
