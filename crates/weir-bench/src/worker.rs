//! A thread of the generator: its connections, and the callers on them.

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
    calls::{OverLine, call},
    checks::{Asker, Requests},
    talks::Talker,
    tally::Meter,
    turns::{Nanos, Paced, Queue, SECOND, Schedule, Stop, Timer, Turns, Wall},
    wire::{
        dial::{Connection, Head, Sender, Target},
        line::{Line, Losses},
        patience::Patience,
    },
};
use crate::Failure;

/// Connections that a thread makes at once.
const DIALS: usize = 32;

/// How a load is carried: the same for all threads.
#[derive(Clone, Debug)]
pub struct Carried {
    pub threads: usize,
    /// Of all threads together.
    pub connections: usize,
    /// Callers on each connection.
    pub streams: usize,
    /// Checks under way on each stream; `None`: the callers make unary calls.
    pub window: Option<usize>,
    /// Calls a second of an open loop, over all threads; `None`: the loop is closed.
    pub rate: Option<f64>,
    pub warm_up: Duration,
    /// After the warm-up.
    pub duration: Duration,
    pub seed: u64,
}

impl Carried {
    /// When the measurement begins and ends, since the start.
    pub fn measured(&self) -> (Nanos, Nanos) {
        let nanos = |time: Duration| (time.as_secs_f64() * SECOND) as Nanos;
        (nanos(self.warm_up), nanos(self.warm_up + self.duration))
    }

    /// The connections of one thread.
    fn connections_of(&self, thread: usize) -> usize {
        self.connections / self.threads + usize::from(thread < self.connections % self.threads)
    }
}

/// All that a thread is given.
#[derive(Clone)]
pub struct Work {
    pub carried: Carried,
    pub target: Arc<Target>,
    pub head: Head,
    pub requests: Arc<Requests>,
    pub losses: Losses,
    pub stop: Stop,
}

/// A thread that has been started.
pub struct Worker {
    /// What it counts.
    pub meter: Arc<Meter>,
    connected: oneshot::Receiver<Result<(), Failure>>,
    start: oneshot::Sender<Instant>,
    ended: Ended,
}

/// Tells the end of a thread.
pub type Ended = oneshot::Receiver<Result<Paced, Failure>>;

/// A thread at work.
pub struct Running {
    /// What it counts.
    pub meter: Arc<Meter>,
    /// See [`Running::end`].
    pub ended: Ended,
}

impl Worker {
    /// Starts the thread with this number, from 0, which begins to connect.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn spawn(work: Work, number: usize) -> Result<Self, Failure> {
        let meter = Arc::new(Meter::new(work.carried.measured().0)?);
        let (tell_connected, connected) = oneshot::channel();
        let (start, started) = oneshot::channel();
        let (tell_ended, ended) = oneshot::channel();
        let thread = Thread { work, number, meter: Arc::clone(&meter) };
        thread::Builder::new().name(format!("load-{number}")).spawn(move || {
            // Who is no longer there to hear it has ended the program.
            let _ = tell_ended.send(thread.run(tell_connected, started));
        })?;
        Ok(Self { meter, connected, start, ended })
    }

    /// Waits until its connections stand.
    ///
    /// # Errors
    /// When they do not.
    pub async fn connected(mut self) -> Result<Self, Failure> {
        (&mut self.connected).await.map_err(|_| died())??;
        Ok(self)
    }

    /// Lets it begin: `at` is the beginning of time.
    pub fn start(self, at: Instant) -> Running {
        // Where it is gone, its end tells.
        let _ = self.start.send(at);
        Running { meter: self.meter, ended: self.ended }
    }
}

impl Running {
    /// Waits until all its calls have ended. Tells how its schedule went, where it has one.
    ///
    /// # Errors
    /// When the thread has failed.
    pub async fn end(ended: Ended) -> Result<Paced, Failure> {
        ended.await.map_err(|_| died())?
    }
}

fn died() -> Failure {
    Failure("a thread of the generator died".to_owned())
}

struct Thread {
    work: Work,
    number: usize,
    meter: Arc<Meter>,
}

impl Thread {
    fn run(
        self,
        connected: oneshot::Sender<Result<(), Failure>>,
        started: oneshot::Receiver<Instant>,
    ) -> Result<Paced, Failure> {
        runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let connections = match self.connect().await {
                Ok(connections) => connections,
                Err(cause) => {
                    let _ = connected.send(Err(Failure(cause)));
                    return Paced::new().map_err(Failure::from);
                }
            };
            let _ = connected.send(Ok(()));
            // Connections wait as they are; nothing is to be sent or heard before the start.
            let Ok(start) = started.await else { return Paced::new().map_err(Failure::from) };
            self.load(connections, start).await
        })
    }

    async fn connect(&self) -> Result<Vec<(Sender, Connection)>, String> {
        let dials = (0..self.work.carried.connections_of(self.number)).map(|_| self.work.target.dial());
        stream::iter(dials).buffer_unordered(DIALS).try_collect().await
    }

    async fn load(&self, connections: Vec<(Sender, Connection)>, start: Instant) -> Result<Paced, Failure> {
        let Carried { threads, rate, .. } = self.work.carried;
        let (wall, stop) = (Wall::new(start), self.work.stop.clone());
        let (measured_from, end) = self.work.carried.measured();
        let mut paced = Paced::new()?;
        let Some(rate) = rate else {
            let mut callers = self.callers(connections, &Turns::closed(wall, end, stop));
            return all_end(&mut callers).await.map(|()| paced);
        };
        let queue = Arc::new(Queue::new(Schedule::new(rate, self.number, threads, end)));
        let mut callers = self.callers(connections, &Turns::open(wall, Arc::clone(&queue), stop.clone()));
        queue.pace(wall, Timer::new(wall)?, (measured_from, end), stop, &mut paced).await?;
        all_end(&mut callers).await?;
        paced.unsent = queue.unsent().min(paced.due);
        Ok(paced)
    }

    /// The callers, who begin at once.
    fn callers(&self, connections: Vec<(Sender, Connection)>, turns: &Turns<Wall>) -> JoinSet<()> {
        let Work { carried, target, head, requests, losses, stop } = &self.work;
        let mut callers = JoinSet::new();
        for (connection, dialed) in connections.into_iter().enumerate() {
            let (line, keep) = Line::new(Arc::clone(target), dialed, Arc::clone(losses), stop.clone());
            tokio::spawn(keep);
            for stream in 0..carried.streams {
                let caller = (self.number * carried.connections + connection) * carried.streams + stream;
                let asker = Asker::new(Arc::clone(requests), carried.seed, caller as u64);
                let (turns, line, head, meter) = (turns.clone(), line.clone(), head.clone(), Arc::clone(&self.meter));
                let patience = Patience::new(target.timeout());
                match carried.window {
                    None => callers.spawn(call(turns, OverLine { line, head, patience }, asker, meter)),
                    Some(window) => callers.spawn(Talker { turns, line, head, asker, meter, patience, window }.talk()),
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
