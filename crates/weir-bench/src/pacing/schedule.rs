//! The schedule of an open loop: start times that do not depend on earlier calls.

/// Nanoseconds since the start of the load.
pub(crate) type Nanos = u64;

/// Nanoseconds in a second.
pub(crate) const SECOND: f64 = 1e9;

/// The due times of one thread's calls, evenly spaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Time between two calls, in nanoseconds.
    period: f64,
    /// Time before the first call, in nanoseconds.
    offset: f64,
    /// No call starts at or after this time.
    end: Nanos,
}

impl Schedule {
    /// Makes the share of `thread` (from 0) of `rate` calls per second (above 0) until `end`. The shares of all threads
    /// together are evenly spaced.
    pub(crate) fn new(rate: f64, thread: usize, threads: usize, end: Nanos) -> Self {
        let spacing = SECOND / rate;
        Self { period: spacing * threads as f64, offset: spacing * thread as f64, end }
    }

    /// Returns the due time of a call, by its number (from 0).
    pub(crate) fn due(&self, call: u64) -> Nanos {
        (self.offset + call as f64 * self.period) as Nanos
    }

    /// Returns the number of calls due at or before `now`.
    pub(crate) fn due_by(&self, now: Nanos) -> u64 {
        let now = now.min(self.end.saturating_sub(1));
        if self.end == 0 {
            return 0;
        }
        let mut count = ((now as f64 - self.offset) / self.period).max(0.0) as u64;
        // The division may round either way.
        while count > 0 && self.due(count - 1) > now {
            count -= 1;
        }
        while self.due(count) <= now {
            count += 1;
        }
        count
    }

    /// Returns the number of all calls.
    pub(crate) fn calls(&self) -> u64 {
        self.due_by(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_rate_evenly() {
        let end = 2_000_000_000;
        let schedules: Vec<_> = (0..3).map(|thread| Schedule::new(1_000.0, thread, 3, end)).collect();
        let mut moments: Vec<_> =
            schedules.iter().flat_map(|schedule| (0..schedule.calls()).map(|call| schedule.due(call))).collect();
        moments.sort_unstable();
        assert_eq!(moments, (0..2_000).map(|call| call * 1_000_000).collect::<Vec<_>>());
    }

    #[test]
    fn due_by_counts_exactly_the_calls_due() {
        for rate in [0.3, 7.0, 1_234.567, 1e6 / 3.0, 5e6] {
            let schedule = Schedule::new(rate, 1, 2, 10_000_000_000);
            for now in (0..10_000_000_000).step_by(333_333_333) {
                let count = schedule.due_by(now);
                assert!(count == 0 || schedule.due(count - 1) <= now, "{rate} at {now}");
                assert!(schedule.due(count) > now, "{rate} at {now}");
                let next = (count + 1).min(schedule.calls());
                assert_eq!(schedule.due_by(schedule.due(count)), next, "{rate} at {now}");
            }
            assert!(schedule.due(schedule.calls() - 1) < 10_000_000_000);
            assert_eq!(schedule.due_by(u64::MAX), schedule.calls());
        }
        assert_eq!(Schedule::new(10.0, 0, 1, 0).calls(), 0);
    }
}
