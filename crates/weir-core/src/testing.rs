//! Random cases that can be replayed: a failure prints its seed, and `LAWS_SEED=<that>` runs the same case first.
//! `LAWS_EFFORT=100` runs a hundred times as many cases.
#![allow(clippy::unwrap_used)]

use std::{env, fmt::Debug, str::FromStr};

/// A small generator (splitmix64): equal seeds, equal numbers, on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, which depends on this one's seed and on `salt`.
    pub fn fork(&self, salt: u64) -> Self {
        Self(Self(self.0 ^ salt.wrapping_mul(0xd605_1b05_c6a3_4f2d)).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// A number from `least` to `most`, both possible.
    pub fn within(&mut self, least: i64, most: i64) -> i64 {
        least + (self.next() % (most - least + 1) as u64) as i64
    }

    /// A number from 0 to `most`, small ones as likely as large ones.
    pub fn magnitude(&mut self, most: i64) -> i64 {
        let bits = self.below(64 - most.max(1).leading_zeros() as usize + 1);
        self.within(0, most.min((1i64 << bits) - 1).max(0))
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Runs `case` with `usual` seeds, or as many times more as the environment asks for.
pub fn cases(usual: u64, mut case: impl FnMut(&Random)) {
    let first: u64 = setting("LAWS_SEED", 1);
    let effort: u64 = setting("LAWS_EFFORT", 1);
    for seed in (0..usual * effort).map(|case| first.wrapping_add(case)) {
        let _replay = OnPanic(|| format!("replay with LAWS_SEED={seed}"));
        case(&Random::new(seed));
    }
}

fn setting<T: FromStr<Err: Debug>>(name: &str, default: T) -> T {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Says where a test stood when it fails within the life of this value.
pub struct OnPanic<F: Fn() -> String>(
    /// What is printed.
    pub F,
);

impl<F: Fn() -> String> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", (self.0)());
        }
    }
}
