//! Who may begin a call, and when it is meant to have begun.

mod schedule;
mod stop;
mod time;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hdrhistogram::Histogram;
use tokio::sync::Semaphore;

pub use self::{
    schedule::{Nanos, SECOND, Schedule},
    stop::Stop,
    time::{Alarm, Timer, Wall, Watch},
};
use super::tally;

/// Gives turns to callers.
#[derive(Clone)]
pub struct Turns<W> {
    watch: W,
    stop: Stop,
    loop_: Loop,
}

#[derive(Clone)]
enum Loop {
    /// Whoever is free begins at once, until this moment.
    Closed(Nanos),
    /// Calls begin by a schedule. Who is free takes the first that is due; what finds nobody free waits, and its time is
    /// counted from when it was due.
    Open(Arc<Queue>),
}

impl<W: Watch> Turns<W> {
    /// Of a closed loop, which ends at `end` or when `stop` is set.
    pub fn closed(watch: W, end: Nanos, stop: Stop) -> Self {
        Self { watch, stop, loop_: Loop::Closed(end) }
    }

    /// Of an open loop.
    pub fn open(watch: W, queue: Arc<Queue>, stop: Stop) -> Self {
        Self { watch, stop, loop_: Loop::Open(queue) }
    }

    /// The present.
    pub fn now(&self) -> Nanos {
        self.watch.now()
    }

    /// Waits for a turn, and tells when it is meant to begin. `None`: there are no more.
    pub async fn next(&self) -> Option<Nanos> {
        match &self.loop_ {
            Loop::Closed(_) => self.next_now(),
            Loop::Open(queue) => {
                queue.due.acquire().await.ok()?.forget();
                Some(queue.take())
            }
        }
    }

    /// A turn, if there is one at once.
    pub fn next_now(&self) -> Option<Nanos> {
        match &self.loop_ {
            Loop::Closed(end) => {
                let now = self.watch.now();
                (now < *end && !self.stop.is_set()).then_some(now)
            }
            Loop::Open(queue) => {
                queue.due.try_acquire().ok()?.forget();
                Some(queue.take())
            }
        }
    }

    /// A turn was taken, but the load ended before its call was sent.
    pub fn give_back(&self) {
        if let Loop::Open(queue) = &self.loop_ {
            queue.given_back.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The calls of an open loop's schedule that nobody has taken yet.
pub struct Queue {
    schedule: Schedule,
    /// A permit for each that is due.
    due: Semaphore,
    taken: AtomicU64,
    given_back: AtomicU64,
}

/// How an open loop went, without its warm-up.
#[derive(Debug)]
pub struct Paced {
    /// Calls that were due.
    pub due: u64,
    /// Those of them that were never sent, because the load ended first.
    pub unsent: u64,
    /// Most calls that were due and waited for somebody to be free.
    pub most_waiting: u64,
    /// By how much the schedule itself was behind: the generator had no time for it. In nanoseconds.
    pub behind: Histogram<u64>,
}

impl Paced {
    /// Nothing was due.
    ///
    /// # Errors
    /// Never; the bounds of histograms are fixed.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self { due: 0, unsent: 0, most_waiting: 0, behind: tally::histogram()? })
    }

    /// What another thread did, too.
    ///
    /// # Errors
    /// Never; all histograms have the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<(), hdrhistogram::AdditionError> {
        self.due += other.due;
        self.unsent += other.unsent;
        self.most_waiting += other.most_waiting;
        self.behind.add(&other.behind)
    }
}

impl Queue {
    pub fn new(schedule: Schedule) -> Self {
        Self { schedule, due: Semaphore::new(0), taken: AtomicU64::new(0), given_back: AtomicU64::new(0) }
    }

    fn take(&self) -> Nanos {
        self.schedule.due(self.taken.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes calls due, each in its time, until the schedule ends at `end` or `stop` is set. What was due before
    /// `measured_from` is not counted.
    ///
    /// # Errors
    /// When the system's timer fails.
    pub async fn pace(
        &self,
        watch: impl Watch,
        mut alarm: impl Alarm,
        (measured_from, end): (Nanos, Nanos),
        stop: Stop,
        paced: &mut Paced,
    ) -> io::Result<()> {
        let (schedule, all) = (&self.schedule, self.schedule.calls());
        let first_measured = measured_from.checked_sub(1).map_or(0, |before| schedule.due_by(before));
        let mut issued = 0;
        loop {
            let now = watch.now();
            let due = schedule.due_by(now);
            if now >= measured_from {
                paced.most_waiting = paced.most_waiting.max(self.due.available_permits() as u64);
            }
            for call in issued.max(first_measured)..due {
                paced.behind.saturating_record(now - schedule.due(call));
            }
            self.due.add_permits((due - issued) as usize);
            issued = due;
            let next = if issued < all { schedule.due(issued) } else { end };
            if issued == all && now >= end {
                break;
            }
            tokio::select! {
                biased;
                () = stop.wait() => break,
                rung = alarm.until(next) => rung?,
            }
        }
        self.due.close();
        // The generator may have had no time for those of the last moment.
        let due = schedule.due_by(watch.now());
        self.given_back.fetch_add(due - issued, Ordering::Relaxed);
        paced.due = due.saturating_sub(first_measured);
        Ok(())
    }

    /// How many calls were due and never sent. Meant for the time after the last caller has ended.
    pub fn unsent(&self) -> u64 {
        self.due.available_permits() as u64 + self.given_back.load(Ordering::Relaxed)
    }
}
