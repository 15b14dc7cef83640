//! Random test cases with replay: a failure prints its seed, and `PROPERTIES_SEED=<seed>` runs that case first.
//! `PROPERTIES_EFFORT=100` runs a hundred times as many cases.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)]

mod limits;
mod oracle;

use std::{env, time::UNIX_EPOCH};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

pub use limits::{bucket, limits, parse};
pub use oracle::{LimitDefinition, Oracle, first_violation};

use crate::hold::{Grant, HoldId, MAX_TTL, Renewal};

/// A seeded random number generator: the same numbers on every machine and with every version of `rand_chacha`.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns a generator with the same seed and different numbers for each `stream`.
    pub fn fork(&self, stream: u64) -> Self {
        let mut fork = self.clone();
        fork.0.set_stream(stream);
        fork
    }

    /// Returns a number from 0 to below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(..bound)
    }

    /// Returns a number from `min` to `max`, both included.
    pub fn within(&mut self, min: i64, max: i64) -> i64 {
        self.0.random_range(min..=max)
    }

    /// Returns a number from 0 to `max`, small ones as likely as large ones.
    pub fn magnitude(&mut self, max: i64) -> i64 {
        let bits = self.below(64 - max.max(1).leading_zeros() as usize + 1);
        self.within(0, max.min((1i64 << bits) - 1).max(0))
    }

    /// Returns true with probability 1 / `times`.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.0.random_ratio(1, times)
    }

    /// Returns one of the values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// The owner of a hold that violates the protocol: it repeats and reorders renewals, and spends and keeps units that
/// it does not hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct DishonestOwner {
    sequence: u64,
    spent: u64,
    units: u64,
}

impl DishonestOwner {
    /// Creates its next renewal, which wants at most `max` units.
    pub fn renewal(&mut self, id: HoldId, max: i64, random: &mut Random) -> Renewal {
        self.sequence =
            (self.sequence + random.pick(&[0, 1, 1, 1, 1, 2])).saturating_sub(random.pick(&[0, 0, 0, 0, 0, 1]));
        let spent = random.within(0, self.units as i64 + 1).unsigned_abs();
        self.spent += spent;
        let left = self.units.saturating_sub(spent);
        let kept = random.pick(&[0, left, left / 2, left + u64::from(spent == 0)]);
        let want = random.pick(&[0, 1, random.clone().magnitude(max).unsigned_abs()]);
        let ttl = random.pick(&[1_000, 250_000, 250_000, 10_000_000, 2 * MAX_TTL]);
        Renewal { id, sequence: self.sequence, spent: self.spent, kept, want, ttl }
    }

    /// Records a grant, assuming that the units that it kept are still held.
    pub fn answered(&mut self, renewal: &Renewal, grant: &Grant) {
        self.units = renewal.kept + grant.units;
    }
}

/// Runs `case` with `usual` seeds, multiplied by `PROPERTIES_EFFORT`.
pub fn cases(usual: u64, mut case: impl FnMut(&Random)) {
    let first = from_environment("PROPERTIES_SEED").unwrap_or(1);
    let effort = from_environment("PROPERTIES_EFFORT").unwrap_or(1);
    for seed in (0..usual * effort).map(|case| first.wrapping_add(case)) {
        let _replay = OnPanic(|| format!("replay with PROPERTIES_SEED={seed}"));
        case(&Random::new(seed));
    }
}

/// Returns the number in an environment variable, if it is set.
pub fn from_environment(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Returns a seed that no earlier run had.
pub fn fresh_seed() -> u64 {
    UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64
}

/// Prints a text if the test fails during the life of this value.
pub(crate) struct OnPanic<F: Fn() -> String>(
    /// The text to print.
    pub F,
);

impl<F: Fn() -> String> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", (self.0)());
        }
    }
}
