//! Warnings about what may happen with every request.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// How long it is silent after each word.
const SILENCE: Duration = Duration::from_secs(1);

/// Lets one word through a second.
#[derive(Debug)]
pub struct Throttle {
    start: Instant,
    /// Milliseconds after the start until which it is silent.
    silent_until: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { start: Instant::now(), silent_until: AtomicU64::new(0) }
    }
}

impl Throttle {
    /// Whether this word may be said.
    pub fn lets_through(&self, now: Instant) -> bool {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = millis(now.saturating_duration_since(self.start));
        let until = self.silent_until.load(Ordering::Relaxed);
        let next = now.saturating_add(millis(SILENCE));
        now >= until && self.silent_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_a_second() {
        let throttle = Throttle::default();
        let said = |millis| throttle.lets_through(throttle.start + Duration::from_millis(millis));
        assert_eq!([0, 1, 999, 1_000, 1_001, 5_000].map(said), [true, false, false, true, false, true]);
    }
}
