//! The distribution of keys.

use clap::ValueEnum;
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Zipf, ZipfError};

/// How often each key is checked
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// All equally often
    Uniform,
    /// The n-th as often as 1 / n^exponent
    Zipf,
}

/// A distribution of key numbers.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// Numbers below this, all equally likely.
    Uniform(u64),
    /// Numbers below this; the first is the most likely.
    Zipf(u64, Zipf<f64>),
}

impl Keys {
    /// Makes a distribution of the numbers from 0 to below `count`.
    ///
    /// # Errors
    /// A Zipf distribution with `count` 0 or a negative exponent.
    pub(crate) fn new(count: u64, distribution: Distribution, exponent: f64) -> Result<Self, ZipfError> {
        match distribution {
            Distribution::Uniform => Ok(Self::Uniform(count)),
            Distribution::Zipf => Ok(Self::Zipf(count, Zipf::new(count as f64, exponent)?)),
        }
    }

    /// Draws the number of the next key.
    pub(crate) fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        match self {
            Self::Uniform(1) => 0,
            Self::Uniform(count) => rng.random_range(..*count),
            // Ranks start at 1, and rounding may exceed the last one.
            Self::Zipf(count, zipf) => (rng.sample(zipf) as u64).clamp(1, *count) - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    /// Returns the share of each of `count` keys in 200,000 draws.
    fn shares(count: u64, exponent: f64) -> Vec<f64> {
        const DRAWS: usize = 200_000;
        let (keys, mut rng) = (Keys::new(count, Distribution::Zipf, exponent).unwrap(), ChaCha8Rng::seed_from_u64(1));
        let mut counts = vec![0.0; count as usize];
        for _ in 0..DRAWS {
            counts[keys.draw(&mut rng) as usize] += 1.0 / DRAWS as f64;
        }
        counts
    }

    #[test]
    fn zipf_draws_each_rank_with_its_expected_frequency() {
        for exponent in [0.5, 0.99, 1.0, 1.000_000_1, 1.5, 3.0] {
            for count in [1, 2, 10, 100] {
                let weights: Vec<_> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
                let all: f64 = weights.iter().sum();
                for (rank, (share, weight)) in shares(count, exponent).iter().zip(&weights).enumerate() {
                    let wanted = weight / all;
                    assert!((share - wanted).abs() < 0.005, "{rank} of {count} at {exponent}: {share}, not {wanted}");
                }
            }
        }
    }

    #[test]
    fn zipf_reaches_the_highest_ranks() {
        let (keys, mut rng) = (Keys::new(1_000_000, Distribution::Zipf, 0.1).unwrap(), ChaCha8Rng::seed_from_u64(1));
        let drawn: Vec<_> = (0..10_000).map(|_| keys.draw(&mut rng)).collect();
        assert!(drawn.iter().all(|number| *number < 1_000_000));
        assert!(drawn.iter().any(|number| *number > 990_000));
    }
}
