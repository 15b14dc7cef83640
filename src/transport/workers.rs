//! The threads that serve connections: a current-thread runtime each, so that a request never moves between cores.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// A number of serving threads.
pub struct Workers {
    workers: Vec<Worker>,
    threads: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

/// Where to start a connection, and how many are there.
#[derive(Clone, Debug)]
pub struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl Worker {
    /// Runs a connection to its end on this worker.
    pub fn serve(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let connections = Arc::clone(&self.connections);
        connections.fetch_add(1, Ordering::Relaxed);
        self.runtime.spawn(async move {
            let _done = Done(connections);
            connection.await;
        });
    }

    /// The worker with the fewest connections: a few fat ones are the normal case, and they should not share.
    pub fn least_loaded(workers: &[Self]) -> Option<&Self> {
        workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
    }
}

/// Counts a connection out, also when it panics.
struct Done(Arc<AtomicUsize>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts `count` threads, at least one; their names begin with `name`.
    ///
    /// # Errors
    /// When the system has no thread or reactor to give.
    pub fn start(name: &str, count: usize) -> io::Result<Self> {
        let mut all = Self { workers: Vec::new(), threads: Vec::new(), stop: CancellationToken::new() };
        for index in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, stop) = (runtime.handle().clone(), all.stop.clone());
            all.workers.push(Worker { runtime: handle, connections: Arc::default() });
            let name = format!("{name}-{index}");
            all.threads.push(thread::Builder::new().name(name).spawn(move || runtime.block_on(stop.cancelled()))?);
        }
        Ok(all)
    }

    /// The workers, for a server to choose from.
    pub fn handles(&self) -> Vec<Worker> {
        self.workers.clone()
    }

    /// Ends the threads; what still runs on them is dropped.
    pub fn stop(self) {
        self.stop.cancel();
        for thread in self.threads {
            // A worker that panicked has told so; there is nothing left to do for it.
            let _ = thread.join();
        }
    }
}
