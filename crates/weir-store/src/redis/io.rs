//! The thread on which connections live, apart from those that serve.

use std::{io, thread};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// A thread with a runtime, which ends when this is dropped.
pub(super) struct IoThread {
    handle: Handle,
    end: CancellationToken,
}

impl IoThread {
    /// Starts it.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        thread::Builder::new().name("weir-store".to_owned()).spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(Self { handle, end })
    }

    /// The runtime.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        self.end.cancel();
    }
}
