//! A thread of the generator: its connections and their callers.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::{
    runtime,
    sync::oneshot,
    task::{JoinError, JoinSet},
};

use super::{
    calls::{ConnectionSender, call},
    checks::{RequestWriter, Requests},
    pacing::{DueCalls, Nanos, Pacer, SECOND, Schedule, ScheduleStats, Stop, SystemTimer, WallClock},
    recorder::Recorder,
    streams::StreamCaller,
    wire::{
        connection::{Losses, SharedConnection},
        dial::{Connection, Head, Sender, Target},
        timeout::Timeout,
    },
};
use crate::Failure;

/// Maximum number of connections that a thread opens concurrently.
const DIALS: usize = 32;

/// The shape of a load, the same for all threads.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub threads: usize,
    /// Connections of all threads.
    pub connections: usize,
    /// Callers on each connection.
    pub streams: usize,
    /// Checks in flight on each stream; `None`: unary calls.
    pub window: Option<usize>,
    /// Calls per second of an open loop, over all threads; `None`: the loop is closed.
    pub rate: Option<f64>,
    pub warm_up: Duration,
    /// Duration of the measurement, after the warm-up.
    pub duration: Duration,
    pub seed: u64,
}

impl Load {
    /// Returns the start and end of the measurement.
    pub(crate) fn measured(&self) -> (Nanos, Nanos) {
        let nanos = |time: Duration| (time.as_secs_f64() * SECOND) as Nanos;
        (nanos(self.warm_up), nanos(self.warm_up + self.duration))
    }

    /// Returns the number of connections of one thread.
    fn connections_of(&self, thread: usize) -> usize {
        self.connections / self.threads + usize::from(thread < self.connections % self.threads)
    }
}

/// The input of a thread.
#[derive(Clone)]
pub(crate) struct Work {
    pub load: Load,
    pub target: Arc<Target>,
    pub head: Head,
    pub requests: Arc<Requests>,
    pub losses: Losses,
    pub stop: Stop,
}

/// A thread that connects and waits for the start.
pub(crate) struct Worker {
    /// Its counts.
    pub recorder: Arc<Recorder>,
    connected: oneshot::Receiver<Result<(), Failure>>,
    start: oneshot::Sender<Instant>,
    ended: oneshot::Receiver<Result<ScheduleStats, Failure>>,
}

impl Worker {
    /// Starts thread `number` (from 0), which connects.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub(crate) fn spawn(work: Work, number: usize) -> Result<Self, Failure> {
        let recorder = Arc::new(Recorder::new(work.load.measured().0)?);
        let (tell_connected, connected) = oneshot::channel();
        let (start, started) = oneshot::channel();
        let (tell_ended, ended) = oneshot::channel();
        let thread = Thread { work, number, recorder: Arc::clone(&recorder) };
        thread::Builder::new().name(format!("load-{number}")).spawn(move || {
            // Without a receiver the program is ending.
            let _ = tell_ended.send(thread.run(tell_connected, started));
        })?;
        Ok(Self { recorder, connected, start, ended })
    }

    /// Waits until it has connected.
    ///
    /// # Errors
    /// A connection fails.
    pub(crate) async fn connected(mut self) -> Result<Self, Failure> {
        (&mut self.connected).await.map_err(|_| panicked())??;
        Ok(self)
    }

    /// Starts the load; `at` is time 0. Returns the counts, and the deviations from the schedule once all calls have
    /// ended.
    pub(crate) fn start(self, at: Instant) -> (Arc<Recorder>, impl Future<Output = Result<ScheduleStats, Failure>>) {
        // If the thread has ended, `ended` has the reason.
        let _ = self.start.send(at);
        (self.recorder, async { self.ended.await.map_err(|_| panicked())? })
    }
}

fn panicked() -> Failure {
    Failure("a thread of the generator panicked".to_owned())
}

struct Thread {
    work: Work,
    number: usize,
    recorder: Arc<Recorder>,
}

impl Thread {
    fn run(
        self,
        connected: oneshot::Sender<Result<(), Failure>>,
        started: oneshot::Receiver<Instant>,
    ) -> Result<ScheduleStats, Failure> {
        runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let connections = match self.connect().await {
                Ok(connections) => connections,
                Err(cause) => {
                    let _ = connected.send(Err(Failure(cause)));
                    return ScheduleStats::new().map_err(Failure::from);
                }
            };
            let _ = connected.send(Ok(()));
            // Nothing is sent or received before the start.
            let Ok(start) = started.await else { return ScheduleStats::new().map_err(Failure::from) };
            self.load(connections, start).await
        })
    }

    async fn connect(&self) -> Result<Vec<(Sender, Connection)>, String> {
        let dials = (0..self.work.load.connections_of(self.number)).map(|_| self.work.target.dial());
        stream::iter(dials).buffer_unordered(DIALS).try_collect().await
    }

    async fn load(&self, connections: Vec<(Sender, Connection)>, start: Instant) -> Result<ScheduleStats, Failure> {
        let Load { threads, rate, .. } = self.work.load;
        let (wall, stop) = (WallClock::new(start), self.work.stop.clone());
        let (measured_from, end) = self.work.load.measured();
        let mut stats = ScheduleStats::new()?;
        let Some(rate) = rate else {
            let mut callers = self.callers(connections, &Pacer::closed(wall, end, stop));
            return all_end(&mut callers).await.map(|()| stats);
        };
        let queue = Arc::new(DueCalls::new(Schedule::new(rate, self.number, threads, end)));
        let mut callers = self.callers(connections, &Pacer::open(wall, Arc::clone(&queue), stop.clone()));
        queue.pace(wall, SystemTimer::new(wall)?, (measured_from, end), stop, &mut stats).await?;
        all_end(&mut callers).await?;
        stats.unsent = queue.unsent().min(stats.due);
        Ok(stats)
    }

    /// Starts the callers.
    fn callers(&self, connections: Vec<(Sender, Connection)>, pacing: &Pacer<WallClock>) -> JoinSet<()> {
        let Work { load, target, head, requests, losses, stop } = &self.work;
        let mut callers = JoinSet::new();
        for (connection, dialed) in connections.into_iter().enumerate() {
            let (shared, drive) = SharedConnection::new(Arc::clone(target), dialed, Arc::clone(losses), stop.clone());
            tokio::spawn(drive);
            for stream in 0..load.streams {
                let caller = (self.number * load.connections + connection) * load.streams + stream;
                let writer = RequestWriter::new(Arc::clone(requests), load.seed, caller as u64);
                let (pacer, connection, head, recorder) =
                    (pacing.clone(), shared.clone(), head.clone(), Arc::clone(&self.recorder));
                let timeout = Timeout::new(target.timeout());
                match load.window {
                    None => {
                        callers.spawn(call(pacer, ConnectionSender { connection, head, timeout }, writer, recorder))
                    }
                    Some(window) => {
                        callers.spawn(StreamCaller { pacer, connection, head, writer, recorder, timeout, window }.run())
                    }
                };
            }
        }
        callers
    }
}

async fn all_end(callers: &mut JoinSet<()>) -> Result<(), Failure> {
    while let Some(ended) = callers.join_next().await {
        ended.map_err(|error: JoinError| io::Error::from(error))?;
    }
    Ok(())
}
