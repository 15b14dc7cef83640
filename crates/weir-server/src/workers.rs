//! The threads that serve connections: a current-thread runtime each, so that a request never moves between cores; or,
//! by setting, one work-stealing runtime on all of them.

use std::{
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Listen, Listener, fair_queue::FairQueue};

/// Timeout for the threads of a runtime to end, also those that a file blocks. Their tasks have ended before.
const END: Duration = Duration::from_secs(1);

/// The distribution of connections over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// A connection stays on the thread that had the fewest connections when it was accepted.
    #[default]
    PerCore,
    /// Any thread may run the calls of any connection.
    MultiThread,
}

/// The serving threads.
pub struct Workers {
    workers: Vec<Worker>,
    count: usize,
    running: Running,
}

enum Running {
    PerCore(Vec<JoinHandle<()>>, CancellationToken),
    /// `None` once stopped.
    MultiThread(Option<Runtime>),
}

/// A runtime that serves connections.
#[derive(Clone, Debug)]
pub struct Worker {
    runtime: Handle,
    queue: FairQueue,
    connections: TaskTracker,
}

impl Worker {
    fn new(runtime: &Runtime) -> Self {
        let runtime = runtime.handle().clone();
        Self { queue: FairQueue::start(&runtime), runtime, connections: TaskTracker::new() }
    }

    /// Returns the runtime of its connections.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the queue in which its connections take turns to read.
    pub(crate) fn queue(&self) -> FairQueue {
        self.queue.clone()
    }

    /// Runs a connection to its end on this worker.
    pub(crate) fn serve(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.connections.spawn_on(connection, &self.runtime);
    }

    /// Returns the worker with the fewest connections: a few busy connections are the normal case, and they should not
    /// share a worker.
    pub(crate) fn least_loaded(workers: &[Self]) -> Option<&Self> {
        workers.iter().min_by_key(|worker| worker.connections.len())
    }
}

impl Workers {
    /// Starts `count` threads, at least one; their names start with `name`.
    ///
    /// # Errors
    /// The system cannot create a thread or a reactor.
    pub fn start(name: &str, count: usize, kind: RuntimeKind) -> io::Result<Self> {
        let count = count.max(1);
        match kind {
            RuntimeKind::PerCore => Self::per_core(name, count),
            RuntimeKind::MultiThread => {
                let runtime =
                    Builder::new_multi_thread().worker_threads(count).thread_name(name).enable_all().build()?;
                Ok(Self { workers: vec![Worker::new(&runtime)], count, running: Running::MultiThread(Some(runtime)) })
            }
        }
    }

    fn per_core(name: &str, count: usize) -> io::Result<Self> {
        let (mut workers, mut threads, stop) = (Vec::new(), Vec::new(), CancellationToken::new());
        for index in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            workers.push(Worker::new(&runtime));
            let (name, stop) = (format!("{name}-{index}"), stop.clone());
            let serve = move || {
                runtime.block_on(stop.cancelled());
                runtime.shutdown_timeout(END);
            };
            threads.push(thread::Builder::new().name(name).spawn(serve)?);
        }
        Ok(Self { workers, count, running: Running::PerCore(threads, stop) })
    }

    /// Returns the workers, for a server to choose from.
    pub fn handles(&self) -> Vec<Worker> {
        self.workers.clone()
    }

    /// Listens on an address. Registers the socket with the runtime that accepts, so that no other busy runtime delays
    /// its connections.
    ///
    /// # Errors
    /// The address cannot be resolved or is in use.
    pub async fn listen(&self, address: &Listen) -> io::Result<Listener> {
        let address = address.clone();
        self.workers[0].runtime.spawn(async move { Listener::bind(&address).await }).await?
    }

    /// Returns the number of threads.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Stops the threads. Tasks that still run are dropped.
    pub fn stop(mut self) {
        match &mut self.running {
            Running::PerCore(threads, stop) => {
                stop.cancel();
                for thread in threads.drain(..) {
                    // The panic of a worker has been logged.
                    let _ = thread.join();
                }
            }
            Running::MultiThread(runtime) => {
                runtime.take().into_iter().for_each(|runtime| runtime.shutdown_timeout(END))
            }
        }
    }
}

impl Drop for Workers {
    /// Workers of a service that cannot start are dropped by a task, in which a runtime must not wait for its threads.
    fn drop(&mut self) {
        if let Running::MultiThread(runtime) = &mut self.running {
            runtime.take().into_iter().for_each(Runtime::shutdown_background);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn connections_are_accepted_though_the_runtime_that_listens_is_busy() {
        let workers = Workers::start("test", 1, RuntimeKind::PerCore).expect("a thread");
        let listener = workers.listen(&Listen::Tcp("127.0.0.1:0".to_owned())).await.expect("a port");
        let (address, (accepted, accepts)) = (listener.address(), mpsc::channel());
        workers.handles()[0].runtime().spawn(async move { accepted.send(listener.accept().await.is_ok()) });
        let _client = std::net::TcpStream::connect(address).expect("it listens");
        // Blocks this runtime.
        assert_eq!(accepts.recv_timeout(Duration::from_secs(60)), Ok(true));
        workers.stop();
    }

    #[test]
    fn threads_end_though_a_file_blocks() {
        for kind in [RuntimeKind::PerCore, RuntimeKind::MultiThread] {
            let workers = Workers::start("test", 1, kind).expect("a thread");
            let (release, blocks) = mpsc::channel::<()>();
            workers.handles()[0].runtime().spawn_blocking(move || blocks.recv_timeout(Duration::from_secs(60)));
            workers.stop();
            release.send(()).expect("it still waits");
        }
    }
}
