//! Which key is asked next.

use clap::ValueEnum;

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;

/// How often each key is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// All equally often
    Uniform,
    /// The n-th as often as 1 / n^exponent
    Zipf,
}

/// Numbers of keys, drawn by a distribution.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Each of so many is as likely as the others.
    Uniform(u64),
    /// The first is the likeliest.
    Zipf(Zipf),
}

impl Keys {
    /// The numbers from 0 to below `count`, which is at least 1.
    pub fn new(count: u64, distribution: Distribution, exponent: f64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform(count),
            Distribution::Zipf => Self::Zipf(Zipf::new(count, exponent)),
        }
    }

    /// The next one.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        match self {
            Self::Uniform(1) => 0,
            Self::Uniform(count) => rng.random_range(..*count),
            Self::Zipf(zipf) => zipf.draw(rng),
        }
    }
}

/// Zipf's distribution, drawn by rejection-inversion (Hörmann and Derflinger, 1996): without a table, in the same time for
/// any number of keys.
///
/// The ranks are the bars of a histogram below the curve x^-exponent. A point is drawn below the curve by the inverse of
/// its integral; nearly all of them lie within the bar of the rank next to them, and the others are drawn anew.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral where the first bar begins, and where the last one ends.
    area: (f64, f64),
    /// So near to its rank a point is always within the bar.
    surely_within: f64,
}

impl Zipf {
    /// Over so many ranks, at least 1; the exponent is above 0.
    fn new(count: u64, exponent: f64) -> Self {
        let count = count as f64;
        let mut zipf = Self { count, exponent, area: (0.0, 0.0), surely_within: 0.0 };
        zipf.area = (zipf.integral(1.5) - 1.0, zipf.integral(count + 0.5));
        zipf.surely_within = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.height(2.0));
        zipf
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        let (first, last) = self.area;
        loop {
            let under = last + rng.random::<f64>() * (first - last);
            let at = self.inverse(under);
            let rank = at.round().clamp(1.0, self.count);
            if rank - at <= self.surely_within || under >= self.integral(rank + 0.5) - self.height(rank) {
                return rank as u64 - 1;
            }
        }
    }

    /// The curve.
    fn height(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// Its integral from 1 to `x`. Written so that it stays exact where the exponent is near 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = (1.0 - self.exponent) * log;
        if scaled.abs() < f64::EPSILON { log } else { log * (scaled.exp_m1() / scaled) }
    }

    /// The `x` whose integral is `area`.
    fn inverse(&self, area: f64) -> f64 {
        let scaled = ((1.0 - self.exponent) * area).max(-1.0);
        if scaled.abs() < f64::EPSILON { area.exp() } else { (area * (scaled.ln_1p() / scaled)).exp() }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    /// How often each of `count` keys is drawn in 200,000 draws, as a share.
    fn shares(count: u64, exponent: f64) -> Vec<f64> {
        const DRAWS: usize = 200_000;
        let (keys, mut rng) = (Keys::new(count, Distribution::Zipf, exponent), ChaCha8Rng::seed_from_u64(1));
        let mut counts = vec![0.0; count as usize];
        for _ in 0..DRAWS {
            counts[keys.draw(&mut rng) as usize] += 1.0 / DRAWS as f64;
        }
        counts
    }

    #[test]
    fn zipf_draws_each_rank_as_often_as_it_should() {
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
    fn zipf_reaches_the_last_of_many() {
        let (keys, mut rng) = (Keys::new(1_000_000, Distribution::Zipf, 0.1), ChaCha8Rng::seed_from_u64(1));
        let drawn: Vec<_> = (0..10_000).map(|_| keys.draw(&mut rng)).collect();
        assert!(drawn.iter().all(|number| *number < 1_000_000));
        assert!(drawn.iter().any(|number| *number > 990_000));
    }
}
