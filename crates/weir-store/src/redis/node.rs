//! One server that keeps states: its pipeline workers, its connections, and its circuit breaker.

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

/// The pauses between two probes of a server that fails: the first, and the longest.
const PROBE_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PROBE_PAUSE: Duration = Duration::from_millis(500);

/// A server.
pub(crate) struct Node {
    address: Address,
    context: Arc<Context>,
    queues: Vec<Arc<Queue>>,
    hasher: FixedState,
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    /// Starts a node's tasks; they end when it is dropped. `seed` decides which worker has which key.
    pub(super) fn start(address: Address, queues: Vec<Arc<Queue>>, seed: u64, context: Context, tasks: &Tasks) -> Self {
        let context = Arc::new(context);
        let workers = queues.iter().map(|queue| tasks.spawn(worker::run(Arc::clone(queue), Arc::clone(&context))));
        let watch = tasks.spawn(watch(Arc::clone(&context)));
        let tasks = workers.chain([watch]).collect();
        Self { address, context, queues, hasher: FixedState::with_seed(seed), tasks }
    }

    /// Where it is, or by whom it is found.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The key that lives there.
    pub(crate) fn probe_key(&self) -> &ProbeKey {
        &self.context.probe_key
    }

    /// Whether it is asked at all.
    pub(crate) fn is_up(&self) -> bool {
        !self.context.breaker.is_open()
    }

    /// Asks for one part, from the call on. What concerns one key is carried out in the order in which it is asked.
    ///
    /// # Errors
    /// Why the server did not answer.
    pub(crate) fn ask(&self, part: Part, deadline: Instant, asking: bool) -> impl Future<Output = Answer> {
        let queue = self.queue_of(&part);
        match self.context.breaker.instead().map_or_else(|| queue.push(part, deadline, asking), Err) {
            Ok(pending) => Either::Left(queue.answer(pending, deadline)),
            Err(failure) => Either::Right(ready(Err(failure))),
        }
    }

    /// Charges a part afterwards. It never takes the place of a check, and a failure says for sure whether it was sent.
    ///
    /// # Errors
    /// Why it is not charged, or not known to be.
    pub(crate) async fn charge(&self, part: Part, deadline: Instant, asking: bool) -> Answer {
        self.context.breaker.instead().map_or(Ok(()), Err)?;
        let queue = self.queue_of(&part);
        if !queue.has_room() {
            return Err(Failure::QueueFull);
        }
        queue.push(part, deadline, asking)?.outcome().await
    }

    fn queue_of(&self, part: &Part) -> &Queue {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(part.keys.first().map(Vec::as_slice).unwrap_or_default());
        &self.queues[(hasher.finish() % self.queues.len() as u64) as usize]
    }

    /// Runs commands outside the pipelines of checks, in one round trip: the reply to each, errors too. On the node's runtime.
    ///
    /// # Errors
    /// Why the server did not reply.
    pub(crate) async fn commands(&self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        self.run(|connection| send_all(connection, commands)).await
    }

    /// Runs one command outside the pipelines, whose key's slot may be migrating to this node (`asking`). On the node's
    /// runtime.
    ///
    /// # Errors
    /// Why the server did not reply, or its error.
    pub(crate) async fn command(&self, command: &Cmd, asking: bool) -> Result<Value, Failure> {
        self.run(|connection| query(connection, command, asking)).await
    }

    /// Runs the script outside the pipelines, with one key, whose slot may be migrating to this node (`asking`). On the
    /// node's runtime.
    ///
    /// # Errors
    /// Why the server did not reply, or its error.
    pub(crate) async fn script(&self, key: &[u8], call: &[u8], asking: bool) -> Result<Value, Failure> {
        self.run(|connection| script::run(connection, key, call, asking)).await
    }

    async fn run<T, F>(&self, work: impl FnOnce(MultiplexedConnection) -> F) -> Result<T, Failure>
    where
        F: Future<Output = RedisResult<T>>,
    {
        self.context.breaker.instead().map_or(Ok(()), Err)?;
        self.context.run(work).await
    }

    /// Its connections.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.context.pool
    }

    /// A number that changes whenever another server is behind this name.
    pub(crate) fn changes(&self) -> u64 {
        self.context.pool.changes()
    }

    /// How it is, for metrics.
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

/// Probes the server while it fails, and lets requests to it again when it is well.
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
                info!(server, after_seconds = since.elapsed().as_secs_f64(), "the store answers again");
            }
            if timeout(RELAPSE, breaker.wait_until_open()).await.is_err() {
                break;
            }
            // Probes do not see what is wrong, so they must not let requests there at their usual rate: the pauses go on
            // growing.
            relapses += 1;
            if relapses == 1 {
                let error = &*breaker.cause();
                warn!(server, error, "the store fails again soon after a probe went well");
            }
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PROBE_PAUSE);
        }
        if relapses > 0 {
            info!(server, relapses, "the store goes on answering");
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
        *pause = (2 * *pause).min(LONGEST_PROBE_PAUSE);
    }
}
