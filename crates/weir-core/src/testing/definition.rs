//! What a limit admits, by its definition, over what was really admitted and when: apart from the code under test.

use crate::domain::Micros;

/// A limit, defined.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each variant says what its numbers are")]
pub enum Definition {
    /// A bucket of `capacity` units into which `count` flow back per `period`.
    Bucket { capacity: u64, count: u64, period: Micros },
    /// At most `count` in each window that is aligned to the epoch.
    Window { count: u64, period: Micros },
    /// At most `count` within any span of this length.
    AnySpan { count: u64, period: Micros },
    /// At most so many are held at one time, whatever is admitted.
    Slots { max: u64 },
    /// At most `at_once` and what comes back at the rate, `count` per `period`, within any span of time.
    Rate { at_once: u64, count: u64, period: Micros },
}

/// One limiter that knows nothing but the definition.
#[derive(Clone, Debug)]
pub struct Limiter {
    definition: Definition,
    admitted: Vec<Micros>,
    /// Of a bucket: what is in it, in parts of a unit.
    level: i128,
    /// Of a rate: the least excess so far.
    least: i128,
    /// Until then it admits anything, as the limit has just changed.
    unjudged_until: Micros,
    /// Of a bucket: the most that it counts until then, as each of both limits cuts what the other one has counted.
    most_until: u64,
}

impl Limiter {
    /// It has admitted nothing yet.
    pub fn new(definition: Definition) -> Self {
        Self {
            definition,
            admitted: Vec::new(),
            level: 0,
            least: i128::MAX,
            unjudged_until: Micros::MIN,
            most_until: 0,
        }
    }

    /// What it is now.
    pub fn definition(&self) -> Definition {
        self.definition
    }

    /// Whether it admits a unit.
    pub fn admits(&self, now: Micros) -> bool {
        if now < self.unjudged_until {
            return true;
        }
        match self.definition {
            Definition::Bucket { capacity, period, .. } => {
                self.drained(now) + i128::from(period) <= i128::from(capacity) * i128::from(period)
            }
            Definition::Window { count, period } => {
                let window = now.div_euclid(period);
                let used = self.admitted.iter().rev().take_while(|at| at.div_euclid(period) == window).count();
                (used as u64) < count
            }
            Definition::AnySpan { count, period } => {
                let before = self.admitted.len().checked_sub(count as usize);
                before.is_none_or(|index| now - self.admitted[index] >= period)
            }
            Definition::Slots { .. } => true,
            Definition::Rate { at_once, period, .. } => {
                let line = self.line(now);
                line - self.least.min(line) + i128::from(period) <= i128::from(at_once) * i128::from(period)
            }
        }
    }

    /// Counts a unit that was admitted.
    pub fn count(&mut self, now: Micros) {
        self.least = self.least.min(self.line(now));
        if let Definition::Bucket { period, .. } = self.definition {
            self.level = self.drained(now) + i128::from(period);
        }
        if now < self.unjudged_until {
            self.clamp_to(self.most_until);
        }
        self.admitted.push(now);
    }

    /// The limit becomes another, everywhere by this time.
    pub fn change(&mut self, definition: Definition, by: Micros) {
        if let (Definition::Bucket { capacity: before, .. }, Definition::Bucket { capacity, .. }) =
            (self.definition, definition)
        {
            self.most_until = before.min(capacity);
        }
        (self.definition, self.unjudged_until) = (definition, by);
        self.clamp_to(self.most_until);
    }

    /// No limit counts more than it can itself have made.
    pub fn clamp(&mut self) {
        if let Definition::Bucket { capacity, .. } = self.definition {
            self.clamp_to(capacity);
        }
    }

    fn clamp_to(&mut self, most: u64) {
        if let Definition::Bucket { period, .. } = self.definition {
            self.level = self.level.min(i128::from(most) * i128::from(period));
        }
    }

    /// Forgets what it has admitted.
    pub fn forget(&mut self) {
        let Self { definition, unjudged_until, most_until, .. } = *self;
        *self = Self { unjudged_until, most_until, ..Self::new(definition) };
    }

    fn drained(&self, now: Micros) -> i128 {
        let (Definition::Bucket { count, .. }, Some(last)) = (self.definition, self.admitted.last()) else { return 0 };
        (self.level - i128::from(now - last) * i128::from(count)).max(0)
    }

    fn line(&self, now: Micros) -> i128 {
        let Definition::Rate { count, period, .. } = self.definition else { return 0 };
        self.admitted.len() as i128 * i128::from(period) - i128::from(now) * i128::from(count)
    }
}

/// The first of these units that the limit would not have admitted; one each at its time, in order.
pub fn first_beyond(definition: Definition, admitted: &[Micros]) -> Option<usize> {
    let mut limiter = Limiter::new(definition);
    admitted.iter().position(|at| {
        let admits = limiter.admits(*at);
        limiter.count(*at);
        !admits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_find_what_is_one_too_many() {
        let bucket = Definition::Bucket { capacity: 2, count: 1, period: 10 };
        assert_eq!(first_beyond(bucket, &[0, 0, 10, 20]), None);
        assert_eq!(first_beyond(bucket, &[0, 0, 9]), Some(2));
        let rate = Definition::Rate { at_once: 2, count: 1, period: 10 };
        assert_eq!(first_beyond(rate, &[0, 0, 10, 20]), None);
        assert_eq!(first_beyond(rate, &[0, 0, 9]), Some(2));
        let window = Definition::Window { count: 2, period: 10 };
        assert_eq!(first_beyond(window, &[8, 9, 10, 11, 20]), None);
        assert_eq!(first_beyond(window, &[8, 9, 10, 11, 19]), Some(4));
        let any = Definition::AnySpan { count: 2, period: 10 };
        assert_eq!(first_beyond(any, &[0, 5, 10, 15]), None);
        assert_eq!(first_beyond(any, &[0, 5, 9]), Some(2));
    }

    #[test]
    fn while_a_bucket_changes_it_counts_what_the_smaller_one_holds() {
        let bucket = |capacity| Definition::Bucket { capacity, count: 1, period: 10 };
        for (before, after) in [(1, 3), (3, 1)] {
            let mut limiter = Limiter::new(bucket(before));
            limiter.change(bucket(after), 5);
            for at in [1, 2, 3] {
                assert!(limiter.admits(at));
                limiter.count(at);
            }
            let room = [5; 4]
                .iter()
                .take_while(|at| {
                    let admits = limiter.admits(**at);
                    limiter.count(**at);
                    admits
                })
                .count();
            assert_eq!(room as u64, after - 1, "of one that held {before}");
        }
    }
}
