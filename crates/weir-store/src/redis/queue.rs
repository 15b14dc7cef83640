//! Parts that wait for the next round trip of a pipeline worker, and how much of them goes with one.
//!
//! A round trip carries a bounded amount of *work*, which is what its parts make the server do, so that one client's large
//! batch does not keep the server, and other clients, for long. Where more waits than that, submitters take turns. A submitter is
//! the client's connection, however many calls it has; a request without one is a submitter of its own.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    task,
    time::{Instant, timeout_at},
};

use super::{encode::Part, reply::Answer};
use crate::Failure;
use weir_telemetry::request;

/// Most work of one round trip, in levels of a usual algorithm: 1,024 checks of a nested pair, a few milliseconds.
const MAX_ROUND_TRIP_WORK: u64 = 2_048;
/// Work of one submitter's turn.
const TURN_WORK: u64 = 64;

/// A part of a plan on its way.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The levels to decide.
    pub part: Part,
    /// Until when it is to be answered.
    pub deadline: Instant,
    /// The key's slot is being migrated to this server, so `ASKING` goes before.
    pub asking: bool,
    submitter: Submitter,
    position: QueuePosition,
    answer: Option<oneshot::Sender<Answer>>,
    /// The answer, while replicas are waited for.
    kept: Option<Answer>,
}

/// A party that takes turns with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Submitter {
    /// A client's connection.
    Connection(u64),
    /// A task, for requests that came on none.
    Task(Option<task::Id>),
}

impl Submitter {
    /// That of the request at hand.
    fn at_hand() -> Self {
        request::connection().map_or_else(|| Self::Task(task::try_id()), Self::Connection)
    }
}

/// Where a part is in the queue.
#[derive(Clone, Debug)]
struct QueuePosition {
    /// Round trips of the queue when the part came.
    came: u64,
    /// The number of the round trip that the part is sent with; 0 while it waits, [`GIVEN_UP`] once the caller has gone.
    /// Changed with the queue locked.
    round_trip: Arc<AtomicU64>,
}

/// Instead of the number of a round trip: none, since the caller has given up.
const GIVEN_UP: u64 = u64::MAX;

/// An answer to come.
#[derive(Debug)]
pub(super) struct Pending {
    answer: oneshot::Receiver<Answer>,
    position: QueuePosition,
}

impl Waiter {
    /// Gives the answer; only the first counts. Whoever asked may be gone.
    pub(super) fn answer(&mut self, answer: Answer) {
        if let Some(sender) = self.answer.take() {
            let _ = sender.send(answer);
        }
    }

    /// Keeps the answer until it is delivered.
    pub(super) fn keep(&mut self, answer: Answer) {
        self.kept = Some(answer);
    }

    /// Gives the answer that was kept, if one was.
    pub(super) fn deliver(&mut self) -> bool {
        let kept = self.kept.take();
        let is_there = kept.is_some();
        kept.into_iter().for_each(|answer| self.answer(answer));
        is_there
    }

    fn is_awaited(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_closed())
    }

    fn work(&self) -> u64 {
        u64::from(self.part.work)
    }
}

impl Pending {
    /// The answer, waited for as long as it takes. What fails by [`Failure::Shed`] was not sent, since it was not given up.
    pub(super) async fn outcome(self) -> Answer {
        match self.answer.await {
            Ok(Err(Failure::Shed)) => Err(Failure::Late),
            Ok(answer) => answer,
            Err(_) => Err(Failure::Lost("the server is not asked any more".into())),
        }
    }
}

impl QueuePosition {
    /// Decides what becomes of a part that waits.
    ///
    /// # Errors
    /// The number of the round trip that it is sent with, or [`GIVEN_UP`].
    fn settle(&self, round_trip: u64) -> Result<(), u64> {
        let settled = self.round_trip.compare_exchange(0, round_trip, Ordering::Relaxed, Ordering::Relaxed);
        settled.map(drop)
    }

    /// Whether others went before the part, which goes with this round trip, or with one after it.
    fn is_passed_over(&self, round_trip: u64) -> bool {
        round_trip > self.came + 1
    }
}

#[derive(Debug, Default)]
struct Waiters {
    /// In order of arrival.
    waiting: VecDeque<Waiter>,
    /// Work of each submitter that went before what it still has waiting, counted from a common beginning, so that one whose
    /// parts are large does not go first again in each round trip. Only of those that were passed over.
    served: HashMap<Submitter, u64>,
}

/// A queue in order of arrival, but that submitters take turns where there is more than one round trip's work.
#[derive(Debug)]
pub(super) struct Queue {
    waiters: Mutex<Waiters>,
    arrived: Notify,
    round_trips: AtomicU64,
    max_waiting: usize,
}

impl Queue {
    /// An empty queue in which so many may wait.
    pub(super) fn new(max_waiting: usize) -> Self {
        Self { waiters: Mutex::default(), arrived: Notify::new(), round_trips: AtomicU64::new(0), max_waiting }
    }

    /// Adds a part of the submitter at hand.
    ///
    /// # Errors
    /// [`Failure::QueueFull`].
    pub(super) fn push(&self, part: Part, deadline: Instant, asking: bool) -> Result<Pending, Failure> {
        let (sender, answer) = oneshot::channel();
        let submitter = Submitter::at_hand();
        let mut waiters = self.waiters.lock();
        let waiting = &mut waiters.waiting;
        if waiting.len() >= self.max_waiting && !make_room(waiting, submitter, self.max_waiting) {
            return Err(Failure::QueueFull);
        }
        let position = QueuePosition { came: self.round_trips.load(Ordering::Relaxed), round_trip: Arc::default() };
        let first = waiting.is_empty();
        let (pending, answer) = (Pending { answer, position: position.clone() }, Some(sender));
        waiting.push_back(Waiter { part, deadline, asking, submitter, position, answer, kept: None });
        drop(waiters);
        if first {
            self.arrived.notify_one();
        }
        Ok(pending)
    }

    /// Awaits an answer until the deadline.
    ///
    /// # Errors
    /// Why there is none: [`Failure::Shed`] where others went before, else [`Failure::Late`] of what was not sent, and
    /// [`Failure::Lost`] of what was.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async function keeps its parameters twice, for each check that waits"
    )]
    pub(super) fn answer(&self, mut pending: Pending, deadline: Instant) -> impl Future<Output = Answer> {
        async move {
            match timeout_at(deadline, &mut pending.answer).await {
                Ok(answer) => answer.unwrap_or_else(|_| Err(Failure::Lost("the server is not asked any more".into()))),
                Err(_) => self.give_up(pending),
            }
        }
    }

    /// The answer to a part whose time is up; from now on it is not sent.
    fn give_up(&self, Pending { mut answer, position }: Pending) -> Answer {
        let _waiters = self.waiters.lock();
        // It may have come since the time was up. Only the queue knows that a part which it has just answered as late was not
        // passed over.
        if let Ok(answer) = answer.try_recv() {
            return answer;
        }
        let next = self.round_trips.load(Ordering::Relaxed) + 1;
        Err(match position.settle(GIVEN_UP) {
            Ok(()) if position.is_passed_over(next) => Failure::Shed,
            Ok(()) => Failure::Late,
            Err(sent) if position.is_passed_over(sent) => Failure::Shed,
            Err(_) => Failure::Lost("no reply in time".into()),
        })
    }

    /// Takes what goes with the next round trip, at most `most` parts. Parts that would be late are answered instead: those
    /// past their deadline, and, of those passed over, those whose deadline is within a `round_trip`.
    pub(super) fn take(&self, most: usize, round_trip: Duration) -> Vec<Waiter> {
        let mut waiters = self.waiters.lock();
        let fits = |waiters: &Waiters| {
            let waiting = &waiters.waiting;
            waiting.len() <= most && waiting.iter().map(Waiter::work).sum::<u64>() <= MAX_ROUND_TRIP_WORK
        };
        if !fits(&waiters) {
            waiters.waiting.retain(Waiter::is_awaited);
        }
        let mut taken = if fits(&waiters) { waiters.take_all() } else { waiters.take_turns(most) };
        let (now, number) = (Instant::now(), self.round_trips.fetch_add(1, Ordering::Relaxed) + 1);
        taken.retain_mut(|waiter| {
            let passed_over = waiter.position.is_passed_over(number);
            let needed = if passed_over { round_trip } else { Duration::ZERO };
            if waiter.deadline <= now + needed {
                waiter.answer(Err(if passed_over { Failure::Shed } else { Failure::Late }));
            }
            waiter.is_awaited() && waiter.position.settle(number).is_ok()
        });
        taken
    }

    /// Answers all that wait with a failure.
    pub(super) fn fail(&self, failure: &Failure) {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.waiting.into_iter().for_each(|mut waiter| waiter.answer(Err(failure.clone())));
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiters.lock().waiting.len()
    }

    /// Whether it is far from full.
    pub(super) fn has_room(&self) -> bool {
        2 * self.waiting() < self.max_waiting.max(2)
    }

    /// Waits until a part waits. For one task.
    pub(super) async fn wait(&self) {
        while self.waiting() == 0 {
            self.arrived.notified().await;
        }
    }
}

impl Waiters {
    fn take_all(&mut self) -> Vec<Waiter> {
        self.served.clear();
        self.waiting.drain(..).collect()
    }

    /// Takes one round trip's work, a turn of each submitter after the other; each in the order in which it came. A submitter
    /// that comes begins where the one that was served least is.
    fn take_turns(&mut self, most: usize) -> Vec<Waiter> {
        let least = self.served.values().copied().min().unwrap_or_default();
        let served = |submitter: Submitter| self.served.get(&submitter).copied().unwrap_or(least);
        let mut submitted: HashMap<Submitter, u64> = HashMap::new();
        let turn = |(index, waiter): (usize, &Waiter)| {
            let before = submitted.entry(waiter.submitter).or_insert_with(|| served(waiter.submitter));
            let turn = *before / TURN_WORK;
            *before += waiter.work();
            (turn, index)
        };
        let mut turns: Vec<_> = self.waiting.iter().enumerate().map(turn).collect();
        turns.sort_unstable();
        let (mut goes, mut work) = (vec![false; self.waiting.len()], 0);
        for (count, (_, index)) in turns.into_iter().take(most).enumerate() {
            work += self.waiting[index].work();
            if count > 0 && work > MAX_ROUND_TRIP_WORK {
                break;
            }
            goes[index] = true;
        }
        let (mut taken, mut passed_over) = (Vec::new(), HashMap::new());
        for (waiter, goes) in std::mem::take(&mut self.waiting).into_iter().zip(goes) {
            if goes {
                taken.push(waiter);
            } else {
                passed_over.entry(waiter.submitter).or_insert(served(waiter.submitter));
                self.waiting.push_back(waiter);
            }
        }
        for waiter in &taken {
            passed_over.entry(waiter.submitter).and_modify(|served| *served += waiter.work());
        }
        self.served = passed_over;
        taken
    }
}

/// Makes room for a part of a submitter, unless it has its share of the queue: by parts whose askers have gone, or
/// else by what other submitters have beyond theirs.
fn make_room(waiters: &mut VecDeque<Waiter>, submitter: Submitter, max_waiting: usize) -> bool {
    waiters.retain(Waiter::is_awaited);
    if waiters.len() < max_waiting {
        return true;
    }
    let mut counts: HashMap<Submitter, usize> = HashMap::from([(submitter, 0)]);
    waiters.iter().for_each(|waiter| *counts.entry(waiter.submitter).or_default() += 1);
    let share = (max_waiting / counts.len()).max(1);
    if counts.get(&submitter).is_some_and(|own| *own >= share) {
        return false;
    }
    counts.clear();
    waiters.retain_mut(|waiter| {
        let count = counts.entry(waiter.submitter).or_default();
        *count += 1;
        if *count > share {
            waiter.answer(Err(Failure::QueueFull));
        }
        *count <= share
    });
    waiters.len() < max_waiting
}

#[cfg(test)]
mod tests;
