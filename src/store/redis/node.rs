//! One server that keeps states: its lanes, its connections, and what keeps requests from it while it fails.

use std::{
    hash::{BuildHasher, Hasher},
    sync::Arc,
    time::Duration,
};

use foldhash::fast::RandomState;
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::{info, warn};

use super::{
    connection::Reply,
    encode::Part,
    lane::{self, Course},
    manager::{Pooled, discard},
    queue::Queue,
    reply::Decided,
    run::{self, ProbeKey},
};
use crate::store::{Failure, url::Address};

/// The pauses between two probes of a server that fails: the first, and the longest.
const PROBE_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PROBE_PAUSE: Duration = Duration::from_millis(500);
/// A server that fails again so soon after a probe went well goes on failing: the pauses go on growing, too.
const RELAPSE: Duration = Duration::from_secs(5);

/// A server.
pub struct Node {
    name: String,
    address: Address,
    course: Arc<Course>,
    queues: Vec<Arc<Queue>>,
    hasher: RandomState,
    command_timeout: Duration,
    probe_key: Arc<ProbeKey>,
    tasks: Vec<JoinHandle<()>>,
}

/// What a node is made of besides its course.
#[derive(Clone, Debug)]
pub struct NodeTerms {
    /// What it is called in logs and metrics.
    pub name: String,
    /// Where it is, or by whom it is found.
    pub address: Address,
    /// How many lanes.
    pub lanes: usize,
    /// How many parts may wait, in each lane.
    pub max_queue: usize,
    /// The longest that one round trip outside the lanes may take.
    pub command_timeout: Duration,
    /// A key that lives on this server, for probes.
    pub probe_key: Arc<ProbeKey>,
}

impl Node {
    /// Starts the node's tasks on `runtime`; they end when it is dropped.
    pub fn start(terms: NodeTerms, course: Course, runtime: &Handle) -> Self {
        let course = Arc::new(course);
        let queues: Vec<_> = (0..terms.lanes).map(|_| Arc::new(Queue::new(terms.max_queue))).collect();
        let lanes = queues.iter().map(|queue| runtime.spawn(lane::run(Arc::clone(queue), Arc::clone(&course))));
        let mut tasks: Vec<_> = lanes.collect();
        let NodeTerms { name, address, command_timeout, probe_key, .. } = terms;
        let watcher = Watcher {
            server: name.clone(),
            course: Arc::clone(&course),
            command_timeout,
            probe_key: Arc::clone(&probe_key),
        };
        tasks.push(runtime.spawn(watcher.run()));
        Self { name, address, course, queues, hasher: RandomState::default(), command_timeout, probe_key, tasks }
    }

    /// What it is called: its address, or the name by which Sentinels know it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is, or by whom it is found.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The key that lives there.
    pub fn probe_key(&self) -> &ProbeKey {
        &self.probe_key
    }

    /// Whether it is asked at all.
    pub fn is_up(&self) -> bool {
        !self.course.breaker.is_open()
    }

    /// Asks for one part. What concerns one key is carried out in the order in which it is asked.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(&self, part: Part, deadline: Instant, asking: bool) -> Result<Decided, Failure> {
        self.course.breaker.instead().map_or(Ok(()), Err)?;
        let mut hasher = self.hasher.build_hasher();
        hasher.write(part.keys.first().map(Vec::as_slice).unwrap_or_default());
        let queue = &self.queues[(hasher.finish() % self.queues.len() as u64) as usize];
        let answer = queue.push(part, deadline, asking)?;
        match timeout_at(deadline, answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(Failure::Lost("the server is not asked any more".into()))),
            Err(_) => Err(Failure::Lost("no reply in time".into())),
        }
    }

    /// Runs commands beside the lanes, in one round trip: the reply to each, refusals too. On the node's runtime.
    ///
    /// # Errors
    /// Why there are no replies.
    pub async fn commands(&self, commands: &[Vec<&[u8]>]) -> Result<Vec<Reply>, Failure> {
        let mut connection = self.connection().await?;
        let done = timeout(self.command_timeout, run::all(&mut connection, commands)).await;
        settle(connection, done)
    }

    /// Runs one command beside the lanes, whose key's slot may be on its way here (`asking`). On the node's runtime.
    ///
    /// # Errors
    /// Why there is no reply, or the server's refusal.
    pub async fn command(&self, command: &[&[u8]], asking: bool) -> Result<Reply, Failure> {
        let mut connection = self.connection().await?;
        let done = timeout(self.command_timeout, run::one(&mut connection, command, asking)).await;
        settle(connection, done)
    }

    /// Runs the script beside the lanes, with one key, whose slot may be on its way here (`asking`). On the node's
    /// runtime.
    ///
    /// # Errors
    /// Why there is no reply, or the server's refusal.
    pub async fn script(&self, key: &[u8], call: &[u8], asking: bool) -> Result<Reply, Failure> {
        let mut connection = self.connection().await?;
        let done = timeout(self.command_timeout, run::script(&mut connection, key, call, asking)).await;
        settle(connection, done)
    }

    async fn connection(&self) -> Result<Pooled, Failure> {
        self.course.breaker.instead().map_or(Ok(()), Err)?;
        self.course.pool.get().await
    }

    /// A number that changes whenever another server is behind this name.
    pub fn changes(&self) -> u64 {
        self.course.pool.changes()
    }

    /// Connections that there are, and those of them that nobody uses.
    pub fn connections(&self) -> (usize, usize) {
        self.course.pool.sizes()
    }

    /// How many parts wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting()).sum()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.queues.iter().for_each(|queue| queue.fail(&Failure::Closed));
    }
}

/// Probes the server while it fails, and lets requests to it again when it is well.
struct Watcher {
    server: String,
    course: Arc<Course>,
    command_timeout: Duration,
    probe_key: Arc<ProbeKey>,
}

impl Watcher {
    async fn run(self) {
        let (server, breaker) = (&self.server, &self.course.breaker);
        loop {
            breaker.wait_until_open().await;
            let (since, mut pause) = (Instant::now(), PROBE_PAUSE);
            let mut told = breaker.cause();
            warn!(
                server,
                error = &*told,
                "the store does not answer as it should: no checks go there until a probe goes well"
            );
            let mut relapses = 0_u64;
            loop {
                self.wait_until_well(&mut pause, &mut told).await;
                breaker.close();
                if relapses == 0 {
                    info!(server, after_seconds = since.elapsed().as_secs_f64(), "the store answers again");
                }
                if timeout(RELAPSE, breaker.wait_until_open()).await.is_err() {
                    break;
                }
                // Probes do not see what is wrong, so they must not let requests there at their usual rate.
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

    async fn wait_until_well(&self, pause: &mut Duration, told: &mut Arc<str>) {
        while let Err(failure) = self.probe().await {
            let why = failure.to_string();
            if **told != why {
                warn!(server = self.server, error = why, "a probe of the store failed");
                *told = why.into();
            }
            sleep(*pause).await;
            *pause = (2 * *pause).min(LONGEST_PROBE_PAUSE);
        }
    }

    async fn probe(&self) -> Result<(), Failure> {
        let mut connection = self.course.pool.get().await?;
        let key = self.probe_key.get();
        let done = timeout(self.command_timeout, run::probe(&mut connection, &key)).await;
        settle(connection, done)
    }
}

/// What was done on a connection, which goes back to its pool if all went well.
fn settle<T, E>(connection: Pooled, done: Result<Result<T, Failure>, E>) -> Result<T, Failure> {
    let done = done.unwrap_or_else(|_| Err(Failure::Lost("no reply in time".into())));
    if done.is_err() {
        discard(connection);
    }
    done
}
