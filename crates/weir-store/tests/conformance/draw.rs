//! Random draws that `rand` does not offer.

use rand::Rng;

pub trait Draw: Rng {
    /// Returns one of these values.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random_range(0..from.len())]
    }

    /// Returns a number from 0 to `most`, uniformly distributed in magnitude.
    fn magnitude(&mut self, most: i64) -> i64 {
        let bits = self.random_range(..=64 - most.max(1).leading_zeros());
        self.random_range(0..=most.min((1 << bits) - 1).max(0))
    }
}

impl<R: Rng> Draw for R {}
