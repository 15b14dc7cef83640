//! Fair queueing of parts for the next round trip of a pipeline worker.
//!
//! A round trip carries a bounded amount of *work* for the server, so that one client's large batch does not delay the
//! server and other clients for long. If more is queued, submitters are scheduled round-robin. A submitter is a
//! client's connection with all its calls; a request without a connection is a separate submitter.

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

/// Most work in one round trip, in levels of a usual algorithm: 1,024 checks of a nested pair, a few milliseconds.
const MAX_ROUND_TRIP_WORK: u64 = 2_048;
/// Work of a submitter in one turn of the round-robin.
const TURN_WORK: u64 = 64;
/// Parts of a full queue that each further one inspects for callers that are gone.
const INSPECTED: usize = 64;

/// A queued part of a plan.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The levels to decide.
    pub part: Part,
    /// Deadline of the answer.
    pub deadline: Instant,
    /// The key's hash slot is migrating to this server, so `ASKING` must precede the call.
    pub asking: bool,
    submitter: Submitter,
    position: QueuePosition,
    answer: Option<oneshot::Sender<Answer>>,
    /// The answer, withheld until replicas acknowledge it.
    kept: Option<Answer>,
}

/// A participant in the round-robin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Submitter {
    /// A client's connection.
    Connection(u64),
    /// The task of a request without a connection.
    Task(Option<task::Id>),
}

impl Submitter {
    /// Returns the submitter of the current request.
    fn current() -> Self {
        request::connection().map_or_else(|| Self::Task(task::try_id()), Self::Connection)
    }
}

/// The position of a part in the queue.
#[derive(Clone, Debug)]
struct QueuePosition {
    /// Number of the queue's round trips when the part arrived.
    arrived_at: u64,
    /// Number of the round trip that sends the part; 0 while it is queued, [`GIVEN_UP`] after the caller's timeout.
    /// Changed only while the queue is locked.
    round_trip: Arc<AtomicU64>,
}

/// In place of a round trip's number: the caller has given up.
const GIVEN_UP: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Pending {
    answer: oneshot::Receiver<Answer>,
    position: QueuePosition,
}

impl Waiter {
    /// Delivers the answer; only the first one counts. The receiver may be gone.
    pub(super) fn answer(&mut self, answer: Answer) {
        if let Some(sender) = self.answer.take() {
            let _ = sender.send(answer);
        }
    }

    /// Withholds the answer until [`Self::deliver`].
    pub(super) fn keep(&mut self, answer: Answer) {
        self.kept = Some(answer);
    }

    /// Delivers the withheld answer and returns whether there was one.
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
    /// Awaits the answer without a deadline. A part that was shed was not sent, because it was not given up, so that
    /// failure becomes [`Failure::Late`].
    pub(super) async fn outcome(self) -> Answer {
        match self.answer.await {
            Ok(Err(Failure::Shed)) => Err(Failure::Late),
            Ok(answer) => answer,
            Err(_) => Err(Failure::Lost("the connection's worker has stopped".into())),
        }
    }
}

impl QueuePosition {
    /// Assigns a queued part to a round trip, or marks it as given up.
    ///
    /// # Errors
    /// The number of the round trip that already sent it, or [`GIVEN_UP`].
    fn settle(&self, round_trip: u64) -> Result<(), u64> {
        let settled = self.round_trip.compare_exchange(0, round_trip, Ordering::Relaxed, Ordering::Relaxed);
        settled.map(drop)
    }

    /// Whether other parts overtook this one if it is sent with this round trip or a later one.
    fn is_overtaken(&self, round_trip: u64) -> bool {
        round_trip > self.arrived_at + 1
    }
}

#[derive(Debug, Default)]
struct Waiters {
    /// In order of arrival.
    waiting: VecDeque<Waiter>,
    /// Work served for each submitter that was overtaken, relative to a common start, so that submitters of large parts
    /// do not go first in every round trip.
    served: HashMap<Submitter, u64>,
    /// Number of parts of each submitter, counted when the queue was found full; `None` since parts were taken.
    counts: Option<HashMap<Submitter, usize>>,
    /// The part that the next one in a full queue inspects first.
    next_inspected: usize,
}

/// A queue in order of arrival, with round-robin among submitters when more than one round trip's work is queued.
#[derive(Debug)]
pub(super) struct Queue {
    waiters: Mutex<Waiters>,
    arrived: Notify,
    round_trips: AtomicU64,
    max_waiting: usize,
}

impl Queue {
    /// Creates an empty queue for at most `max_waiting` parts.
    pub(super) fn new(max_waiting: usize) -> Self {
        Self { waiters: Mutex::default(), arrived: Notify::new(), round_trips: AtomicU64::new(0), max_waiting }
    }

    /// Queues a part for the current submitter.
    ///
    /// # Errors
    /// [`Failure::QueueFull`].
    pub(super) fn push(&self, part: Part, deadline: Instant, asking: bool) -> Result<Pending, Failure> {
        let (sender, answer) = oneshot::channel();
        let submitter = Submitter::current();
        let mut waiters = self.waiters.lock();
        if waiters.waiting.len() >= self.max_waiting && !waiters.free_place(submitter, self.max_waiting) {
            return Err(Failure::QueueFull);
        }
        let position =
            QueuePosition { arrived_at: self.round_trips.load(Ordering::Relaxed), round_trip: Arc::default() };
        let first = waiters.waiting.is_empty();
        let (pending, answer) = (Pending { answer, position: position.clone() }, Some(sender));
        if let Some(counts) = &mut waiters.counts {
            *counts.entry(submitter).or_default() += 1;
        }
        waiters.waiting.push_back(Waiter { part, deadline, asking, submitter, position, answer, kept: None });
        drop(waiters);
        if first {
            self.arrived.notify_one();
        }
        Ok(pending)
    }

    /// Awaits an answer until the deadline.
    ///
    /// # Errors
    /// [`Failure::Shed`] when other parts went first, else [`Failure::Late`] when the part was not sent, and
    /// [`Failure::Lost`] when it was.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async function keeps its parameters twice, for each check that waits"
    )]
    pub(super) fn answer(&self, mut pending: Pending, deadline: Instant) -> impl Future<Output = Answer> {
        async move {
            match timeout_at(deadline, &mut pending.answer).await {
                Ok(answer) => {
                    answer.unwrap_or_else(|_| Err(Failure::Lost("the connection's worker has stopped".into())))
                }
                Err(_) => self.give_up(pending),
            }
        }
    }

    /// Returns the answer for a part after its deadline, which is no longer sent.
    fn give_up(&self, Pending { mut answer, position }: Pending) -> Answer {
        let _waiters = self.waiters.lock();
        // The answer may have arrived since the deadline. It must be preferred: for a part that the queue failed as
        // late, only the queue knows that it was not overtaken.
        if let Ok(answer) = answer.try_recv() {
            return answer;
        }
        let next = self.round_trips.load(Ordering::Relaxed) + 1;
        Err(match position.settle(GIVEN_UP) {
            Ok(()) if position.is_overtaken(next) => Failure::Shed,
            Ok(()) => Failure::Late,
            Err(sent) if position.is_overtaken(sent) => Failure::Shed,
            Err(_) => Failure::Lost("no reply in time".into()),
        })
    }

    /// Takes the parts of the next round trip, at most `most`. Parts that would be late are failed instead: parts past
    /// their deadline, and overtaken ones whose deadline is within `round_trip`.
    pub(super) fn take(&self, most: usize, round_trip: Duration) -> Vec<Waiter> {
        let mut waiters = self.waiters.lock();
        waiters.counts = None;
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
            let overtaken = waiter.position.is_overtaken(number);
            let needed = if overtaken { round_trip } else { Duration::ZERO };
            if waiter.deadline <= now + needed {
                waiter.answer(Err(if overtaken { Failure::Shed } else { Failure::Late }));
            }
            waiter.is_awaited() && waiter.position.settle(number).is_ok()
        });
        taken
    }

    pub(super) fn fail(&self, failure: &Failure) {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.waiting.into_iter().for_each(|mut waiter| waiter.answer(Err(failure.clone())));
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiters.lock().waiting.len()
    }

    /// Whether less than half of the queue is used.
    pub(super) fn has_capacity(&self) -> bool {
        2 * self.waiting() < self.max_waiting.max(2)
    }

    /// Waits until a part is queued. Supports only one waiting task.
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

    /// Takes one round trip's work round-robin among submitters, in order of arrival for each. A new submitter starts
    /// level with the least served one.
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
        let (mut selected, mut work) = (vec![false; self.waiting.len()], 0);
        for (count, (_, index)) in turns.into_iter().take(most).enumerate() {
            work += self.waiting[index].work();
            if count > 0 && work > MAX_ROUND_TRIP_WORK {
                break;
            }
            selected[index] = true;
        }
        let (mut taken, mut overtaken) = (Vec::new(), HashMap::new());
        for (waiter, selected) in std::mem::take(&mut self.waiting).into_iter().zip(selected) {
            if selected {
                taken.push(waiter);
            } else {
                overtaken.entry(waiter.submitter).or_insert(served(waiter.submitter));
                self.waiting.push_back(waiter);
            }
        }
        for waiter in &taken {
            overtaken.entry(waiter.submitter).and_modify(|served| *served += waiter.work());
        }
        self.served = overtaken;
        taken
    }

    /// Frees a place in a full queue for a submitter's part, unless the submitter has its share: by removing parts
    /// whose callers are gone, or else parts beyond other submitters' shares. In a flood it is called for each rejected
    /// part, so it goes through the queue only if it has not since parts were taken, or if that frees a place.
    fn free_place(&mut self, submitter: Submitter, max_waiting: usize) -> bool {
        if self.counts.is_none() || self.finds_abandoned() {
            self.waiting.retain(Waiter::is_awaited);
            self.counts = None;
        }
        let Self { waiting, counts, .. } = self;
        let counts = counts.get_or_insert_with(|| {
            let mut counts = HashMap::new();
            waiting.iter().for_each(|waiter| *counts.entry(waiter.submitter).or_default() += 1);
            counts
        });
        if waiting.len() < max_waiting {
            return true;
        }
        let own = counts.get(&submitter).copied();
        let share = (max_waiting / (counts.len() + usize::from(own.is_none()))).max(1);
        if own.is_some_and(|own| own >= share) || counts.values().all(|count| *count <= share) {
            return false;
        }
        counts.clear();
        waiting.retain_mut(|waiter| {
            let count = counts.entry(waiter.submitter).or_default();
            let stays = *count < share;
            if stays {
                *count += 1;
            } else {
                waiter.answer(Err(Failure::QueueFull));
            }
            stays
        });
        waiting.len() < max_waiting
    }

    /// Whether one of the parts that are inspected next is not awaited.
    fn finds_abandoned(&mut self) -> bool {
        let (first, length) = (self.next_inspected, self.waiting.len());
        self.next_inspected = (first + INSPECTED) % length.max(1);
        (0..INSPECTED.min(length)).any(|offset| !self.waiting[(first + offset) % length].is_awaited())
    }
}

#[cfg(test)]
mod tests;
