//! A node: one server with states, its pipeline workers, connections and circuit breaker.

use std::{
    hash::{BuildHasher, Hasher},
    sync::Arc,
    time::Duration,
};

use deadpool_redis::redis::{Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection};
use foldhash::fast::FixedState;
use futures_util::future::{Either, ready};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};

use super::{
    breaker::RELAPSE,
    command::{query, send_all},
    encode::Part,
    io::Tasks,
    pool::Pool,
    probe::{ProbeKey, probe},
    queue::Queue,
    reply::Answer,
    script,
    worker::{self, Context},
};
use crate::{Failure, metrics::ServerStatus, url::Address};

/// First and longest pause between two probes of an unhealthy server.
const PROBE_PAUSE: Duration = Duration::from_millis(20);
const MAX_PROBE_PAUSE: Duration = Duration::from_millis(500);

/// One server of the store.
pub(crate) struct Node {
    address: Address,
    context: Arc<Context>,
    queues: Vec<Arc<Queue>>,
    hasher: FixedState,
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    /// Starts the tasks of a node; they end when it is dropped. `seed` determines which worker serves which key.
    pub(super) fn start(address: Address, queues: Vec<Arc<Queue>>, seed: u64, context: Context, tasks: &Tasks) -> Self {
        let context = Arc::new(context);
        let workers = queues.iter().map(|queue| tasks.spawn(worker::run(Arc::clone(queue), Arc::clone(&context))));
        let watch = tasks.spawn(watch(Arc::clone(&context)));
        let tasks = workers.chain([watch]).collect();
        Self { address, context, queues, hasher: FixedState::with_seed(seed), tasks }
    }

    /// Returns the node's address; with Sentinel, the address of the first configured Sentinel.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the probe key, which is stored on this node.
    pub(crate) fn probe_key(&self) -> &ProbeKey {
        &self.context.probe_key
    }

    /// Whether its circuit breaker is closed.
    pub(crate) fn is_up(&self) -> bool {
        !self.context.breaker.is_open()
    }

    /// Submits a part at the time of the call. Parts of one key are executed in the order of submission.
    ///
    /// # Errors
    /// [`Failure`] when there is no answer.
    pub(crate) fn ask(&self, part: Part, deadline: Instant, asking: bool) -> impl Future<Output = Answer> {
        let queue = self.queue_of(&part);
        match self.context.breaker.open_failure().map_or_else(|| queue.push(part, deadline, asking), Err) {
            Ok(pending) => Either::Left(queue.answer(pending, deadline)),
            Err(failure) => Either::Right(ready(Err(failure))),
        }
    }

    /// Submits an outage charge. It never displaces a check, and its failure always reports whether it was sent.
    ///
    /// # Errors
    /// [`Failure`] when it was not charged, or that is unknown.
    pub(crate) async fn charge(&self, part: Part, deadline: Instant, asking: bool) -> Answer {
        self.context.breaker.open_failure().map_or(Ok(()), Err)?;
        let queue = self.queue_of(&part);
        if !queue.has_capacity() {
            return Err(Failure::QueueFull);
        }
        queue.push(part, deadline, asking)?.outcome().await
    }

    fn queue_of(&self, part: &Part) -> &Queue {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(part.keys.first().map(Vec::as_slice).unwrap_or_default());
        &self.queues[(hasher.finish() % self.queues.len() as u64) as usize]
    }

    /// Runs commands outside the pipelines of checks, in one round trip. Returns each reply, including errors. Must be
    /// called on the node's runtime.
    ///
    /// # Errors
    /// [`Failure`] when there are no replies.
    pub(crate) async fn commands(&self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        self.run(|connection| send_all(connection, commands)).await
    }

    /// Runs one command outside the pipelines of checks. With `asking`, its hash slot is migrating to this node. Must
    /// be called on the node's runtime.
    ///
    /// # Errors
    /// [`Failure`] when there is no reply, or an error reply.
    pub(crate) async fn command(&self, command: &Cmd, asking: bool) -> Result<Value, Failure> {
        self.run(|connection| query(connection, command, asking)).await
    }

    /// Runs the script outside the pipelines of checks, with one key. With `asking`, its hash slot is migrating to this
    /// node. Must be called on the node's runtime.
    ///
    /// # Errors
    /// [`Failure`] when there is no reply, or an error reply.
    pub(crate) async fn script(&self, keys: &[&[u8]], call: &[u8], asking: bool) -> Result<Value, Failure> {
        self.run(|connection| script::run(connection, keys, call, asking)).await
    }

    async fn run<T, F>(&self, work: impl FnOnce(MultiplexedConnection) -> F) -> Result<T, Failure>
    where
        F: Future<Output = RedisResult<T>>,
    {
        self.context.breaker.open_failure().map_or(Ok(()), Err)?;
        self.context.run(work).await
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.context.pool
    }

    /// Returns a counter that changes whenever the connections lead to another server.
    pub(crate) fn changes(&self) -> u64 {
        self.context.pool.changes()
    }

    /// Returns the status for metrics.
    pub(crate) fn status(&self) -> ServerStatus {
        let (open, idle) = self.context.pool.sizes();
        let waiting = self.queues.iter().map(|queue| queue.waiting()).sum();
        ServerStatus { server: self.context.server.clone(), outage: self.context.breaker.outage(), open, idle, waiting }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.queues.iter().for_each(|queue| queue.fail(&Failure::Closed));
    }
}

/// Probes the server while its circuit breaker is open, and closes it after a successful probe.
async fn watch(context: Arc<Context>) {
    let (server, breaker) = (&context.server, &context.breaker);
    loop {
        breaker.wait_until_open().await;
        let (since, mut pause) = (Instant::now(), PROBE_PAUSE);
        let mut logged = breaker.cause();
        warn!(
            server,
            error = &*logged,
            "store unhealthy: circuit breaker open, checks are decided by on_store_failure"
        );
        let mut relapses = 0_u64;
        loop {
            wait_until_well(&context, &mut pause, &mut logged).await;
            breaker.close();
            if relapses == 0 {
                info!(
                    server,
                    after_seconds = since.elapsed().as_millis() as f64 / 1e3,
                    "store healthy: circuit breaker closed"
                );
            }
            if timeout(RELAPSE, breaker.wait_until_open()).await.is_err() {
                break;
            }
            // Probes do not detect the fault, so they must not readmit requests at the usual rate: the pauses keep
            // growing.
            relapses += 1;
            if relapses == 1 {
                let error = &*breaker.cause();
                warn!(server, error, "the store fails again soon after a successful probe");
            }
            sleep(pause).await;
            pause = (2 * pause).min(MAX_PROBE_PAUSE);
        }
        if relapses > 0 {
            info!(server, relapses, "the store stays healthy");
        }
    }
}

async fn wait_until_well(context: &Context, pause: &mut Duration, logged: &mut Arc<str>) {
    loop {
        let key = context.probe_key.get();
        let Err(failure) = context.run(|connection| probe(connection, &key)).await else { return };
        let why = failure.to_string();
        if **logged != why {
            warn!(server = context.server, error = why, "a probe of the store failed");
            *logged = why.into();
        }
        sleep(*pause).await;
        *pause = (2 * *pause).min(MAX_PROBE_PAUSE);
    }
}
