//! What traces draw beside what `rand` offers.

use rand::Rng;

pub trait Draw: Rng {
    /// One of these.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random_range(0..from.len())]
    }

    /// A number from 0 to `most`, small ones as likely as large ones.
    fn magnitude(&mut self, most: i64) -> i64 {
        let bits = self.random_range(..=64 - most.max(1).leading_zeros());
        self.random_range(0..=most.min((1 << bits) - 1).max(0))
    }
}

impl<R: Rng> Draw for R {}
