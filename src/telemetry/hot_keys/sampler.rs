//! The choice of the requests that a thread samples, so that a busy thread spends little CPU time on it.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

/// Samples after which the rate is adjusted.
const ROUND: u32 = 64;
/// Duration of a round at the target rate of about 2,000 samples a second.
const ROUND_TIME: Duration = Duration::from_millis(32);
/// Time without a sample after which a thread counts as idle.
const IDLE: Duration = Duration::from_millis(50);
/// Maximum stride: at least one of so many requests is sampled.
const MAX_STRIDE: u32 = 64;

thread_local! {
    static MINE: RefCell<Sampler> = RefCell::new(Sampler::new());
}

/// The sampler of one thread.
struct Sampler {
    /// Requests to skip before the next one is sampled.
    gap: u32,
    /// Average number of requests for each sample.
    stride: u32,
    /// The pulse at the last sample.
    pulse: u32,
    taken: u32,
    latest: Option<(Instant, Instant)>,
}

/// Returns the number of requests that the current one represents, if the calling thread samples it. A `pulse` other
/// than the last sample's forces one.
#[inline]
pub(super) fn take(pulse: u32) -> Option<u32> {
    MINE.with_borrow_mut(|sampler| {
        if sampler.gap > 0 && sampler.pulse == pulse {
            sampler.gap -= 1;
            return None;
        }
        Some(sampler.take(pulse, Instant::now()))
    })
}

impl Sampler {
    fn new() -> Self {
        Self { gap: 0, stride: 1, pulse: 0, taken: 0, latest: None }
    }

    #[cold]
    fn take(&mut self, pulse: u32, now: Instant) -> u32 {
        let weight = self.stride;
        self.pulse = pulse;
        let round = match self.latest {
            Some((round, last)) if now - last < IDLE => round,
            _ => {
                (self.stride, self.taken) = (1, 0);
                now
            }
        };
        self.latest = Some((round, now));
        self.taken += 1;
        if self.taken == ROUND {
            let took = now - round;
            if took < ROUND_TIME {
                self.stride = (2 * self.stride).min(MAX_STRIDE);
            } else if took > 4 * ROUND_TIME {
                self.stride = (self.stride / 2).max(1);
            }
            (self.taken, self.latest) = (0, Some((now, now)));
        }
        // Random, so that it does not follow periodic requests; on average one less than the stride.
        self.gap = rand::random_range(..2 * self.stride - 1);
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends requests at this rate. Returns the number sampled, and the number that the samples represent.
    fn run(sampler: &mut Sampler, from: Instant, requests: u32, every: Duration) -> (u32, u32) {
        let (mut taken, mut weight) = (0, 0);
        for turn in 0..requests {
            if sampler.gap > 0 {
                sampler.gap -= 1;
                continue;
            }
            taken += 1;
            weight += sampler.take(0, from + every * turn);
        }
        (taken, weight)
    }

    #[test]
    fn idle_threads_sample_everything_and_busy_ones_a_weighted_few() {
        let (mut sampler, start) = (Sampler::new(), Instant::now());
        assert_eq!(run(&mut sampler, start, 1_000, Duration::from_millis(1)), (1_000, 1_000));
        let (taken, weight) = run(&mut sampler, start + Duration::from_secs(2), 1_000_000, Duration::from_micros(1));
        assert!((1_000..=20_000).contains(&taken), "{taken} in a second");
        assert!((900_000..=1_100_000).contains(&weight), "they stand for {weight}");
        let (taken, _) = run(&mut sampler, start + Duration::from_secs(9), 300, Duration::from_millis(60));
        assert!(taken >= 170, "{taken} after it has calmed");
    }

    #[test]
    fn a_pulse_samples_the_next_request() {
        assert!(take(1).is_some());
        while take(1).is_some() {
            // Until this thread is busy enough to skip some.
        }
        assert!(take(2).is_some());
    }
}
