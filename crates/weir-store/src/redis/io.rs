//! The thread on which connections live, apart from those that serve; and work there.

use std::{io, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use weir_telemetry::request;

use super::servers::Servers;
use crate::{Failure, StoreError};

/// The servers, the runtime on which their connections live, and how long a command may take.
#[derive(Clone)]
pub(crate) struct Io {
    pub servers: Arc<Servers>,
    pub runtime: Handle,
    pub timeout: Duration,
}

impl Io {
    /// Until when a command may take that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Runs on the store's thread, where its connections live.
    pub(crate) async fn run<T, F>(&self, work: impl FnOnce(Self) -> F + Send) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let done = self.runtime.spawn(request::carried(work(self.clone()))).await;
        done.unwrap_or_else(|error| Err(Failure::Lost(error.to_string().into()))).map_err(StoreError::from)
    }
}

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
