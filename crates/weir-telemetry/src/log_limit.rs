//! Rate limit for log lines about events that every request may cause.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A limit of one log line per interval, one second by default.
#[derive(Debug)]
pub struct LogLimit {
    start: Instant,
    /// Minimum interval between two lines.
    pause: Duration,
    /// Time from which the next line may be logged, in milliseconds since `start`.
    next_millis: AtomicU64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::every(Duration::from_secs(1))
    }
}

impl LogLimit {
    /// Makes a limit with this minimum interval.
    pub fn every(pause: Duration) -> Self {
        Self { start: Instant::now(), pause, next_millis: AtomicU64::new(0) }
    }

    /// Whether a line may be logged now; if so, starts the next interval.
    pub fn allows(&self, now: Instant) -> bool {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = millis(now.saturating_duration_since(self.start));
        let earliest = self.next_millis.load(Ordering::Relaxed);
        let next = now.saturating_add(millis(self.pause));
        now >= earliest
            && self.next_millis.compare_exchange(earliest, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_second_is_allowed() {
        let limit = LogLimit::default();
        let allowed = |millis| limit.allows(limit.start + Duration::from_millis(millis));
        assert_eq!([0, 1, 999, 1_000, 1_001, 5_000].map(allowed), [true, false, false, true, false, true]);
    }
}
