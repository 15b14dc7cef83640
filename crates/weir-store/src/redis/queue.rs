//! Requests that wait for a lane's next round trip.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{encode::Part, reply::Decided};
use crate::Failure;

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

    fn is_awaited(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_closed())
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
            // Those whom nobody waits for any more make room first.
            waiters.retain(Waiter::is_awaited);
            if waiters.len() >= self.max_waiting {
                return Err(Failure::QueueFull);
            }
        }
        let first = waiters.is_empty();
        waiters.push_back(Waiter { part, deadline, asking, answer: Some(sender) });
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
            taken.retain(Waiter::is_awaited);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn those_whom_nobody_waits_for_make_room() {
        let queue = Queue::new(2);
        let first = queue.push(Part::default(), later(), false).unwrap();
        let second = queue.push(Part::default(), later(), false).unwrap();
        assert_eq!(queue.push(Part::default(), later(), false).unwrap_err(), Failure::QueueFull);
        drop(second);
        let third = queue.push(Part::default(), later(), false).unwrap();
        drop(first);
        let mut taken = queue.take(10).await;
        assert_eq!((taken.len(), queue.waiting()), (1, 0), "nor is anything sent for them");
        taken[0].answer(Err(Failure::Closed));
        assert_eq!(third.await.unwrap(), Err(Failure::Closed));
    }

    #[tokio::test]
    async fn whose_time_is_up_is_told_and_not_sent() {
        let queue = Queue::new(2);
        let late = queue.push(Part::default(), Instant::now(), false).unwrap();
        let in_time = queue.push(Part::default(), later(), true).unwrap();
        assert!(queue.take(10).await[0].asking);
        assert_eq!(late.await.unwrap(), Err(Failure::Late));
        assert!(in_time.await.is_err(), "dropped with its waiter");
    }
}
