//! The I/O thread of a store, which runs its connections separately from the serving threads.

use std::{io, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use weir_telemetry::request;

use super::servers::Servers;
use crate::Failure;

/// The runtime of the connections and their tasks, with a flag for a task that panicked.
#[derive(Clone)]
pub(crate) struct Tasks {
    pub handle: Handle,
    panicked: CancellationToken,
}

impl Tasks {
    pub(super) fn on(handle: Handle) -> Self {
        Self { handle, panicked: CancellationToken::new() }
    }

    /// Spawns a background task of the store. If it panics, [`Self::panicked`] completes.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let guard = PanicGuard(self.panicked.clone());
        self.handle.spawn(async move {
            let _guard = guard;
            task.await;
        })
    }

    /// Waits until a task of [`Self::spawn`] panics.
    pub(crate) async fn panicked(&self) {
        self.panicked.cancelled().await;
    }
}

/// Cancels its token when it is dropped during a panic.
struct PanicGuard(CancellationToken);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.cancel();
        }
    }
}

/// The servers, the runtime for requests to them, and the command timeout.
#[derive(Clone)]
pub(crate) struct Io {
    pub servers: Arc<Servers>,
    pub tasks: Tasks,
    pub timeout: Duration,
    pub connect_timeout: Duration,
}

impl Io {
    /// Returns the deadline of a command that starts now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Returns the deadline of a command outside the pipelines of checks, which may need a new connection.
    pub(crate) fn maintenance_deadline(&self) -> Instant {
        self.deadline() + self.connect_timeout
    }

    /// Runs `work` on the store's runtime, where its connections live.
    pub(crate) async fn run<T, F>(&self, work: impl FnOnce(Self) -> F + Send) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let done = self.tasks.handle.spawn(request::carried(work(self.clone()))).await;
        done.unwrap_or_else(|error| Err(Failure::Lost(error.to_string().into())))
    }
}

/// A thread with a runtime, which ends when this value is dropped.
pub(super) struct IoThread {
    handle: Handle,
    end: CancellationToken,
}

impl IoThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the operating system cannot start a thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        thread::Builder::new().name("weir-store".to_owned()).spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(Self { handle, end })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_noticed_and_one_that_ends_or_is_aborted_is_not() {
        let tasks = Tasks::on(Handle::current());
        tasks.spawn(async {}).await.unwrap();
        let aborted = tasks.spawn(pending());
        aborted.abort();
        aborted.await.unwrap_err();
        assert!(timeout(Duration::from_secs(1), tasks.panicked()).await.is_err());
        tasks.spawn(async { panic!("a fault") });
        timeout(Duration::from_secs(1), tasks.panicked()).await.unwrap();
    }
}
