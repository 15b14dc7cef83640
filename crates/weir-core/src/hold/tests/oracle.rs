//! What a limit admits, by its definition, over what was really admitted: apart from the code under test.

use std::collections::HashMap;

use crate::domain::Micros;

/// A limit, defined.
#[derive(Clone, Copy, Debug)]
pub(super) enum Definition {
    /// A bucket of `capacity` units into which `count` flow back per `period`.
    Bucket { capacity: u64, count: u64, period: Micros },
    /// At most `count` in each window that is aligned to the epoch.
    Window { count: u64, period: Micros },
    /// At most `count` within any span of this length.
    AnySpan { count: u64, period: Micros },
    /// At most `at_once` and what comes back at the rate, `count` per `period`, within any span of time.
    Rate { at_once: u64, count: u64, period: Micros },
}

/// The first of these units that the limit would not have admitted; one each at its time, in order.
pub(super) fn first_beyond(definition: Definition, admitted: &[Micros]) -> Option<usize> {
    match definition {
        Definition::Bucket { capacity, count, period } => {
            let (count, period) = (i128::from(count), i128::from(period));
            let (mut level, mut at) = (0, admitted.first().copied().unwrap_or(0));
            admitted.iter().position(|now| {
                level = (level - i128::from(now - at) * count).max(0) + period;
                at = *now;
                level > i128::from(capacity) * period
            })
        }
        Definition::Window { count, period } => {
            let mut used = HashMap::new();
            admitted.iter().position(|now| {
                let used = used.entry(now.div_euclid(period)).or_insert(0);
                *used += 1;
                *used > count
            })
        }
        Definition::AnySpan { count, period } => {
            let count = count as usize;
            (count..admitted.len()).find(|last| admitted[*last] - admitted[last - count] < period)
        }
        Definition::Rate { at_once, count, period } => {
            // The span from one to another is the worst where the first is as early, and the excess so far as great.
            let (count, period) = (i128::from(count), i128::from(period));
            let mut least = i128::MAX;
            admitted.iter().enumerate().position(|(index, now)| {
                let line = index as i128 * period - i128::from(*now) * count;
                least = least.min(line);
                line - least + period > i128::from(at_once) * period
            })
        }
    }
}

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
