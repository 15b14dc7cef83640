//! Start times of calls: immediate in a closed loop, by a schedule in an open one.

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

pub(crate) use self::{
    schedule::{Nanos, SECOND, Schedule},
    stop::Stop,
    time::{Clock, SystemTimer, Timer, WallClock},
};
use super::recorder;

/// The pacer of a caller's calls.
#[derive(Clone)]
pub(crate) struct Pacer<C> {
    clock: C,
    stop: Stop,
    mode: Loop,
}

#[derive(Clone)]
enum Loop {
    /// A free caller starts the next call immediately, until this time.
    Closed(Nanos),
    /// Calls start by a schedule. A free caller takes the first due call. A due call waits for a free caller, and its
    /// latency counts from its due time.
    Open(Arc<DueCalls>),
}

impl<C: Clock> Pacer<C> {
    /// Makes a closed loop, which ends at `end` or when `stop` is set.
    pub(crate) fn closed(clock: C, end: Nanos, stop: Stop) -> Self {
        Self { clock, stop, mode: Loop::Closed(end) }
    }

    /// Makes an open loop.
    pub(crate) fn open(clock: C, queue: Arc<DueCalls>, stop: Stop) -> Self {
        Self { clock, stop, mode: Loop::Open(queue) }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Waits for the next call, and returns its due time. `None`: the load has ended.
    pub(crate) async fn next(&self) -> Option<Nanos> {
        match &self.mode {
            Loop::Closed(_) => self.next_now(),
            Loop::Open(queue) => {
                queue.due.acquire().await.ok()?.forget();
                Some(queue.take())
            }
        }
    }

    /// Returns the due time of the next call, if one is due now.
    pub(crate) fn next_now(&self) -> Option<Nanos> {
        match &self.mode {
            Loop::Closed(end) => {
                let now = self.clock.now();
                (now < *end && !self.stop.is_set()).then_some(now)
            }
            Loop::Open(queue) => {
                queue.due.try_acquire().ok()?.forget();
                Some(queue.take())
            }
        }
    }

    /// Returns a call that was taken but not sent, because the load ended first.
    pub(crate) fn put_back(&self) {
        if let Loop::Open(queue) = &self.mode {
            queue.put_back.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The calls of an open loop that no caller has taken yet.
pub(crate) struct DueCalls {
    schedule: Schedule,
    /// A permit for each due call.
    due: Semaphore,
    taken: AtomicU64,
    put_back: AtomicU64,
}

/// Deviations from the schedule of an open loop, without its warm-up.
#[derive(Debug)]
pub(crate) struct ScheduleStats {
    /// Number of due calls.
    pub due: u64,
    /// Number of due calls that were never sent, because the load ended first.
    pub unsent: u64,
    /// Maximum number of due calls that waited for a free caller.
    pub most_waiting: u64,
    /// Delays of the schedule itself, for lack of CPU, in nanoseconds.
    pub behind: Histogram<u64>,
}

impl ScheduleStats {
    /// Makes statistics of zero calls.
    ///
    /// # Errors
    /// Never; the bounds of histograms are fixed.
    pub(crate) fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self { due: 0, unsent: 0, most_waiting: 0, behind: recorder::histogram()? })
    }

    /// Adds the statistics of another thread.
    ///
    /// # Errors
    /// Never; all histograms have the same bounds.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), hdrhistogram::AdditionError> {
        self.due += other.due;
        self.unsent += other.unsent;
        self.most_waiting += other.most_waiting;
        self.behind.add(&other.behind)
    }
}

impl DueCalls {
    pub(crate) fn new(schedule: Schedule) -> Self {
        Self { schedule, due: Semaphore::new(0), taken: AtomicU64::new(0), put_back: AtomicU64::new(0) }
    }

    fn take(&self) -> Nanos {
        self.schedule.due(self.taken.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes calls due, each at its time, until the schedule ends at `end` or `stop` is set. Calls due before
    /// `measured_from` are not counted.
    ///
    /// # Errors
    /// The system's timer fails.
    pub(crate) async fn pace(
        &self,
        clock: impl Clock,
        mut timer: impl Timer,
        (measured_from, end): (Nanos, Nanos),
        stop: Stop,
        stats: &mut ScheduleStats,
    ) -> io::Result<()> {
        let (schedule, all) = (&self.schedule, self.schedule.calls());
        let first_measured = measured_from.checked_sub(1).map_or(0, |before| schedule.due_by(before));
        let mut issued = 0;
        loop {
            let now = clock.now();
            let due = schedule.due_by(now);
            if now >= measured_from {
                stats.most_waiting = stats.most_waiting.max(self.due.available_permits() as u64);
            }
            for call in issued.max(first_measured)..due {
                stats.behind.saturating_record(now - schedule.due(call));
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
                fired = timer.until(next) => fired?,
            }
        }
        self.due.close();
        // Calls that became due since the last pass count as never sent.
        let due = schedule.due_by(clock.now());
        self.put_back.fetch_add(due - issued, Ordering::Relaxed);
        stats.due = due.saturating_sub(first_measured);
        Ok(())
    }

    /// Returns the number of due calls that were never sent; final once the last caller has ended.
    pub(crate) fn unsent(&self) -> u64 {
        self.due.available_permits() as u64 + self.put_back.load(Ordering::Relaxed)
    }
}
