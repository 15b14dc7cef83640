//! An oracle: whether a limit by its definition admits a unit, given the times of the units admitted before.
//! Independent of the code under test.

use crate::domain::Micros;

/// The definition of a limit.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each variant says what its numbers are")]
pub enum LimitDefinition {
    /// A bucket of `capacity` units, refilled with `count` units per `period`.
    Bucket { capacity: u64, count: u64, period: Micros },
    /// At most `count` units in each window that is aligned to the epoch.
    Window { count: u64, period: Micros },
    /// At most `count` units within any span of `period`.
    AnySpan { count: u64, period: Micros },
    /// At most `max` slots held at the same time, whatever requests are admitted.
    Slots { max: u64 },
    /// At most `at_once` units plus the refill at a rate of `count` per `period`, within any span of time.
    Rate { at_once: u64, count: u64, period: Micros },
}

/// The oracle of one limit.
#[derive(Clone, Debug)]
pub struct Oracle {
    definition: LimitDefinition,
    admitted: Vec<Micros>,
    /// The level of a bucket, in units of 1 / `period`.
    level: i128,
    /// The capacity of the bucket before the last change, and its level: both buckets count everything, each up to its own
    /// capacity.
    before: Option<(u64, i128)>,
    /// The least excess of a rate so far.
    min_excess: i128,
    /// Time before which anything is admitted, since the limit has just changed.
    unchecked_until: Micros,
    /// The most that a bucket counts before `unchecked_until`, since each of the two limits clamps the count of the
    /// other.
    unchecked_max: u64,
}

impl Oracle {
    /// Creates an oracle that has admitted nothing.
    pub fn new(definition: LimitDefinition) -> Self {
        Self {
            definition,
            admitted: Vec::new(),
            level: 0,
            before: None,
            min_excess: i128::MAX,
            unchecked_until: Micros::MIN,
            unchecked_max: 0,
        }
    }

    /// Returns the current definition.
    pub fn definition(&self) -> LimitDefinition {
        self.definition
    }

    /// Whether it admits a unit at `now`.
    pub fn admits(&self, now: Micros) -> bool {
        if now < self.unchecked_until {
            return true;
        }
        match self.definition {
            LimitDefinition::Bucket { capacity, period, .. } => {
                self.drained(self.level, now) + i128::from(period) <= i128::from(capacity) * i128::from(period)
            }
            LimitDefinition::Window { count, period } => {
                let window = now.div_euclid(period);
                let used = self.admitted.iter().rev().take_while(|at| at.div_euclid(period) == window).count();
                (used as u64) < count
            }
            LimitDefinition::AnySpan { count, period } => {
                let before = self.admitted.len().checked_sub(count as usize);
                before.is_none_or(|index| now - self.admitted[index] >= period)
            }
            LimitDefinition::Slots { .. } => true,
            LimitDefinition::Rate { at_once, period, .. } => {
                let line = self.line(now);
                line - self.min_excess.min(line) + i128::from(period) <= i128::from(at_once) * i128::from(period)
            }
        }
    }

    /// Counts an admitted unit.
    pub fn count(&mut self, now: Micros) {
        self.min_excess = self.min_excess.min(self.line(now));
        if let LimitDefinition::Bucket { period, .. } = self.definition {
            self.level = self.drained(self.level, now) + i128::from(period);
            self.before = self.before.map(|(capacity, level)| {
                let most = i128::from(capacity) * i128::from(period);
                (capacity, (self.drained(level, now) + i128::from(period)).min(most))
            });
        }
        if now < self.unchecked_until {
            self.clamp_to(self.unchecked_max);
        }
        self.admitted.push(now);
    }

    /// Changes the limit; the new one is applied everywhere from time `by`.
    pub fn change(&mut self, definition: LimitDefinition, by: Micros) {
        if let (LimitDefinition::Bucket { capacity: before, .. }, LimitDefinition::Bucket { capacity, .. }) =
            (self.definition, definition)
        {
            self.unchecked_max = before.min(capacity);
            let known = self.before.filter(|(of, _)| *of == capacity).map(|(_, level)| level);
            self.before = Some((before, self.level));
            self.level = known.map_or(self.level, |known| known.min(self.level));
        }
        (self.definition, self.unchecked_until) = (definition, by);
        self.clamp_to(self.unchecked_max);
    }

    /// Clamps the count to the maximum that the limit can have produced itself.
    pub fn clamp(&mut self) {
        if let LimitDefinition::Bucket { capacity, .. } = self.definition {
            self.clamp_to(capacity);
        }
    }

    fn clamp_to(&mut self, max: u64) {
        if let LimitDefinition::Bucket { period, .. } = self.definition {
            self.level = self.level.min(i128::from(max) * i128::from(period));
        }
    }

    /// Forgets the admitted units.
    pub fn forget(&mut self) {
        let Self { definition, unchecked_until, unchecked_max, .. } = *self;
        *self = Self { unchecked_until, unchecked_max, ..Self::new(definition) };
    }

    fn drained(&self, level: i128, now: Micros) -> i128 {
        let (LimitDefinition::Bucket { count, .. }, Some(last)) = (self.definition, self.admitted.last()) else {
            return 0;
        };
        (level - i128::from(now - last) * i128::from(count)).max(0)
    }

    fn line(&self, now: Micros) -> i128 {
        let LimitDefinition::Rate { count, period, .. } = self.definition else { return 0 };
        self.admitted.len() as i128 * i128::from(period) - i128::from(now) * i128::from(count)
    }
}

/// Returns the index of the first unit that the limit would not have admitted. `admitted` contains the time of each
/// unit, in order.
pub fn first_violation(definition: LimitDefinition, admitted: &[Micros]) -> Option<usize> {
    let mut oracle = Oracle::new(definition);
    admitted.iter().position(|at| {
        let admits = oracle.admits(*at);
        oracle.count(*at);
        !admits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_find_the_first_excess_unit() {
        let bucket = LimitDefinition::Bucket { capacity: 2, count: 1, period: 10 };
        assert_eq!(first_violation(bucket, &[0, 0, 10, 20]), None);
        assert_eq!(first_violation(bucket, &[0, 0, 9]), Some(2));
        let rate = LimitDefinition::Rate { at_once: 2, count: 1, period: 10 };
        assert_eq!(first_violation(rate, &[0, 0, 10, 20]), None);
        assert_eq!(first_violation(rate, &[0, 0, 9]), Some(2));
        let window = LimitDefinition::Window { count: 2, period: 10 };
        assert_eq!(first_violation(window, &[8, 9, 10, 11, 20]), None);
        assert_eq!(first_violation(window, &[8, 9, 10, 11, 19]), Some(4));
        let any = LimitDefinition::AnySpan { count: 2, period: 10 };
        assert_eq!(first_violation(any, &[0, 5, 10, 15]), None);
        assert_eq!(first_violation(any, &[0, 5, 9]), Some(2));
    }

    #[test]
    fn while_a_bucket_changes_it_counts_what_the_smaller_one_holds() {
        let bucket = |capacity| LimitDefinition::Bucket { capacity, count: 1, period: 10 };
        for (before, after) in [(1, 3), (3, 1)] {
            let mut oracle = Oracle::new(bucket(before));
            oracle.change(bucket(after), 5);
            for at in [1, 2, 3] {
                assert!(oracle.admits(at));
                oracle.count(at);
            }
            let headroom = [5; 4]
                .iter()
                .take_while(|at| {
                    let admits = oracle.admits(**at);
                    oracle.count(**at);
                    admits
                })
                .count();
            assert_eq!(headroom as u64, after - 1, "of one that held {before}");
        }
    }
}
