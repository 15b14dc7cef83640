//! Requests that wait for a lane's next round trip.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{encode::Part, reply::Decided};
use crate::store::Failure;

/// Where the answer to a part comes.
pub type Answer = oneshot::Receiver<Result<Decided, Failure>>;

/// A part of a plan on its way.
#[derive(Debug)]
pub struct Waiter {
    /// What is asked.
    pub part: Part,
    /// Until when it is to be answered.
    pub deadline: Instant,
    /// The key's slot is on its way to this server, which must be told so.
    pub asking: bool,
    answer: Option<oneshot::Sender<Result<Decided, Failure>>>,
}

impl Waiter {
    /// Gives the answer; only the first counts. Whoever asked may be gone.
    pub fn answer(&mut self, answer: Result<Decided, Failure>) {
        if let Some(sender) = self.answer.take() {
            let _ = sender.send(answer);
        }
    }

    /// Whether it has its answer.
    pub fn is_answered(&self) -> bool {
        self.answer.is_none()
    }
}

/// A queue in order of arrival.
#[derive(Debug)]
pub struct Queue {
    waiters: Mutex<VecDeque<Waiter>>,
    arrived: Notify,
    max_waiting: usize,
}

impl Queue {
    /// An empty queue in which so many may wait.
    pub fn new(max_waiting: usize) -> Self {
        Self { waiters: Mutex::default(), arrived: Notify::new(), max_waiting }
    }

    /// Adds a part.
    ///
    /// # Errors
    /// [`Failure::QueueFull`].
    pub fn push(&self, part: Part, deadline: Instant, asking: bool) -> Result<Answer, Failure> {
        let (sender, receiver) = oneshot::channel();
        let mut waiters = self.waiters.lock();
        if waiters.len() >= self.max_waiting {
            return Err(Failure::QueueFull);
        }
        waiters.push_back(Waiter { part, deadline, asking, answer: Some(sender) });
        let first = waiters.len() == 1;
        drop(waiters);
        if first {
            self.arrived.notify_one();
        }
        Ok(receiver)
    }

    /// Takes those who have waited longest, at least one and at most `most`. Whose time is up is told so.
    pub async fn take(&self, most: usize) -> Vec<Waiter> {
        loop {
            let mut taken = self.take_now(most);
            let now = Instant::now();
            taken
                .iter_mut()
                .filter(|waiter| waiter.deadline <= now)
                .for_each(|waiter| waiter.answer(Err(Failure::Late)));
            taken.retain(|waiter| !waiter.is_answered());
            if !taken.is_empty() {
                return taken;
            }
            self.wait().await;
        }
    }

    /// Answers all that wait with a failure.
    pub fn fail(&self, failure: &Failure) {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.into_iter().for_each(|mut waiter| waiter.answer(Err(failure.clone())));
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiters.lock().len()
    }

    /// Waits until somebody waits. For one task.
    pub async fn wait(&self) {
        while self.waiting() == 0 {
            self.arrived.notified().await;
        }
    }

    fn take_now(&self, most: usize) -> Vec<Waiter> {
        let mut waiters = self.waiters.lock();
        let count = waiters.len().min(most);
        waiters.drain(..count).collect()
    }
}
