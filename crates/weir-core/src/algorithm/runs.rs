//! Units by the time at which they were spent: runs of a mark and the units that were spent at it, the oldest first.
//!
//! A mark is an integer that grows with time, in the limit's own steps. `runs.lua` reads and writes
//! the same numbers in Lua; `sliding` decides by them.

use super::state::{EncodedState, MAX_WHOLE, whole};
use crate::domain::time::MAX_MOMENT;

/// The oldest mark, and then one number for each run: the distance of its mark from the oldest, and in the `BITS`
/// bits below that the units of this run and of all before it. With sums instead of counts, the units before a run
/// and the run of a given unit are found without adding up. Empty without units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs<const BITS: u32>(Box<[u64]>);

/// The newest runs of a state, from some unit on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a, const BITS: u32> {
    oldest: i64,
    /// Units before those in view.
    gone: u64,
    runs: &'a [u64],
}

impl<const BITS: u32> Runs<BITS> {
    /// Maximum number of units, and maximum distance from the oldest mark to the newest.
    const UNITS: u64 = (1 << BITS) - 1;
    const REACH: i64 = (1 << (64 - BITS)) - 1;

    /// Returns all runs.
    pub(crate) fn view(&self) -> View<'_, BITS> {
        match self.0.split_first() {
            Some((oldest, runs)) => View { oldest: *oldest as i64, gone: 0, runs },
            None => View::EMPTY,
        }
    }

    /// Returns the runs without this many of the newest units.
    pub(crate) fn without_newest(&self, units: u64) -> Self {
        let view = self.view();
        let left = view.units().saturating_sub(units);
        if left == 0 {
            return Self(Box::default());
        }
        // The last run to keep is the one that holds the last unit to keep.
        let mut kept: Box<[u64]> = self.0[..view.index_of(left) + 2].into();
        if let Some(last) = kept.last_mut() {
            *last = *last & !Self::UNITS | left;
        }
        Self(kept)
    }
}

impl<'a, const BITS: u32> View<'a, BITS> {
    /// The view of a key that has spent nothing.
    pub(crate) const EMPTY: Self = Self { oldest: 0, gone: 0, runs: &[] };

    /// Returns the number of units in view.
    pub(crate) fn units(self) -> u64 {
        self.runs.last().map_or(0, |last| Self::sum(*last) - self.gone)
    }

    pub(crate) fn newest(self) -> Option<i64> {
        self.runs.last().map(|last| self.mark(*last))
    }

    /// Returns the mark of the `nth` unit in view, the oldest being the first.
    pub(crate) fn mark_of(self, nth: u64) -> Option<i64> {
        self.runs.get(self.index_of(nth)).map(|run| self.mark(*run))
    }

    /// Returns the view from the first mark on that has not `left`; marks that have left must come before those that
    /// have not.
    pub(crate) fn without(self, left: impl Fn(i64) -> bool) -> Self {
        // A shortcut: usually none has left.
        if self.runs.first().is_none_or(|first| !left(self.mark(*first))) {
            return self;
        }
        let at = self.runs.partition_point(|run| left(self.mark(*run)));
        let gone = self.runs[..at].last().map_or(self.gone, |last| Self::sum(*last));
        Self { gone, runs: &self.runs[at..], ..self }
    }

    /// Returns the units in view and `units` more at `mark`, which must not be before the newest. Of these only the
    /// newest `max` are kept, which is at least 1 and fits the bits.
    pub(crate) fn with(self, mark: i64, units: u64, max: u64) -> Runs<BITS> {
        let added = units.min(max);
        let kept = self.newest_units(max - added);
        let Some(first) = kept.runs.first() else {
            return Runs(Box::new([mark as u64, added]));
        };
        let (oldest, units) = (kept.mark(*first), kept.units() + added);
        // One subtraction moves both the marks to the new oldest and the sums to the remaining units.
        let moved = (first & !Runs::<BITS>::UNITS) + kept.gone;
        let mut all = Vec::with_capacity(kept.runs.len() + 2);
        all.push(oldest as u64);
        all.extend(kept.runs.iter().map(|run| run - moved));
        let newest = ((mark - oldest).unsigned_abs() << BITS) | units;
        match all.last_mut() {
            Some(last) if kept.newest() == Some(mark) => *last = newest,
            _ => all.push(newest),
        }
        Runs(all.into_boxed_slice())
    }

    fn newest_units(self, max: u64) -> Self {
        let excess = self.units().saturating_sub(max);
        Self { gone: self.gone + excess, runs: &self.runs[self.index_of(excess + 1)..], ..self }
    }

    /// Returns the index of the run that holds the `nth` unit in view.
    fn index_of(self, nth: u64) -> usize {
        let before = |run: &u64| Self::sum(*run) < self.gone + nth;
        // A shortcut: usually it is the first.
        if self.runs.first().is_some_and(before) { self.runs.partition_point(before) } else { 0 }
    }

    fn mark(self, run: u64) -> i64 {
        self.oldest + (run >> BITS) as i64
    }

    fn sum(run: u64) -> u64 {
        run & Runs::<BITS>::UNITS
    }
}

impl<const BITS: u32> EncodedState for Runs<BITS> {
    /// Encodes the oldest mark, then for each further one its distance from the one before it; a number below 0 is
    /// the number of units beyond one at the mark before it. The last two are the newest mark and the total of units.
    /// `0, 0` without units.
    fn encode(&self) -> Vec<f64> {
        let view = self.view();
        let mut numbers = Vec::with_capacity(view.runs.len() + 3);
        let (mut before, mut sum) = (0, 0);
        for run in view.runs {
            numbers.push((view.mark(*run) - before) as f64);
            let more = View::<BITS>::sum(*run) - sum - 1;
            if more > 0 {
                numbers.push(-(more as f64));
            }
            (before, sum) = (view.mark(*run), View::<BITS>::sum(*run));
        }
        numbers.extend([before as f64, sum as f64]);
        numbers
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [first, middle @ .., newest, units] = numbers else {
            return (numbers.len() == 2 && numbers.iter().all(|number| number.to_bits() == 0))
                .then(|| Self(Box::default()));
        };
        let oldest = whole(*first, 0, MAX_MOMENT)?;
        let mut runs = vec![oldest as u64, 1];
        let mut may_be_more = true;
        for number in middle {
            let (number, last) = (whole(*number, -MAX_WHOLE, MAX_WHOLE)?, *runs.last()?);
            let (mark, sum) = ((last >> BITS) as i64, last & Self::UNITS);
            if number > 0 && sum < Self::UNITS && number <= Self::REACH - mark && number <= MAX_MOMENT - oldest - mark {
                runs.push((((mark + number) as u64) << BITS) | (sum + 1));
            } else if number < 0 && may_be_more && number.unsigned_abs() <= Self::UNITS - sum {
                *runs.last_mut()? = last + number.unsigned_abs();
            } else {
                return None;
            }
            may_be_more = number > 0;
        }
        let all = Self(runs.into());
        let (last, sum) = (all.view().newest()?, all.view().units());
        (whole(*newest, last, last).is_some() && whole(*units, sum as i64, sum as i64).is_some()).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Small = Runs<4>;

    fn numbers(runs: &Small) -> Vec<f64> {
        let numbers = runs.encode();
        assert_eq!(Small::decode(&numbers).as_ref(), Some(runs), "{numbers:?}");
        numbers
    }

    fn of(spent: &[(i64, u64)]) -> Small {
        let start = Runs(Box::default());
        spent.iter().fold(start, |runs, (mark, units)| runs.view().with(*mark, *units, 15))
    }

    #[test]
    fn units_with_the_same_mark_share_a_run() {
        let runs = of(&[(5, 1), (5, 2), (7, 1), (9, 4), (9, 1)]);
        assert_eq!(numbers(&runs), [5.0, -2.0, 2.0, 2.0, -4.0, 9.0, 9.0]);
        let marks: Vec<_> = (1..=10).map(|nth| runs.view().mark_of(nth)).collect();
        assert_eq!(marks[..5], [Some(5), Some(5), Some(5), Some(7), Some(9)]);
        assert_eq!(marks[8..], [Some(9), None]);
    }

    #[test]
    fn expired_runs_are_removed_from_views_and_new_states() {
        let runs = of(&[(5, 3), (7, 1), (9, 5)]);
        let view = runs.view().without(|mark| mark < 7);
        assert_eq!((view.units(), view.mark_of(1), view.mark_of(2)), (6, Some(7), Some(9)));
        assert_eq!(numbers(&view.with(10, 2, 15)), [7.0, 2.0, -4.0, 1.0, -1.0, 10.0, 8.0]);
        assert_eq!(numbers(&runs.view().without(|_| true).with(10, 2, 15)), [10.0, -1.0, 10.0, 2.0]);
    }

    #[test]
    fn the_newest_units_are_kept_above_the_maximum() {
        let view = of(&[(5, 3), (7, 1), (9, 5)]);
        assert_eq!(numbers(&view.view().with(9, 2, 9)), [5.0, 2.0, 2.0, -6.0, 9.0, 9.0]);
        assert_eq!(numbers(&view.view().with(10, 4, 9)), [9.0, -4.0, 1.0, -3.0, 10.0, 9.0]);
        assert_eq!(numbers(&view.view().with(9, 99, 9)), [9.0, -8.0, 9.0, 9.0]);
    }

    #[test]
    fn the_newest_units_are_refunded_first() {
        let runs = of(&[(5, 3), (7, 1), (9, 5)]);
        assert_eq!(numbers(&runs.without_newest(0)), numbers(&runs));
        assert_eq!(numbers(&runs.without_newest(4)), [5.0, -2.0, 2.0, 2.0, 9.0, 5.0]);
        assert_eq!(numbers(&runs.without_newest(5)), [5.0, -2.0, 2.0, 7.0, 4.0]);
        assert_eq!(numbers(&runs.without_newest(8)), [5.0, 5.0, 1.0]);
        assert_eq!(numbers(&runs.without_newest(9)), [0.0, 0.0]);
        assert_eq!(numbers(&runs.without_newest(9).without_newest(1)), [0.0, 0.0]);
    }

    #[test]
    fn invalid_encoded_runs_are_rejected() {
        let far = (1u64 << 60) as f64;
        for (numbers, good) in [
            (&[0.0, -14.0, 0.0, 15.0][..], true),
            (&[0.0, -15.0, 0.0, 16.0], false),
            (&[0.0, -1.0, -1.0, 0.0, 3.0], false),
            (&[5.0, 0.0, 5.0, 1.0], false),
            (&[5.0, 2.0, 6.0, 2.0], false),
            (&[5.0, 2.0, 7.0, 1.0], false),
            (&[5.0, far, far + 5.0, 2.0], false),
            (&[-1.0, -1.0, 1.0], false),
            (&[0.0, 0.0], true),
            (&[0.0, -0.0], false),
            (&[1.0, 0.0], false),
        ] {
            assert_eq!(Small::decode(numbers).is_some(), good, "{numbers:?}");
        }
        assert!(Runs::<33>::decode(&[0.0, 4e9, 4e9, 2.0]).is_none(), "further apart than 31 bits can say");
    }
}
