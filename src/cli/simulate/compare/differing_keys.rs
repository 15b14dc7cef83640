//! The keys that are treated differently, in bounded memory.

use std::collections::HashMap;

use weir_core::domain::Micros;

use super::difference::{Counts, DifferenceKind};

/// Maximum number of keys that are kept.
const MAX_KEYS: usize = 100_000;
/// Maximum size of their names, in bytes.
const MAX_KEYS_BYTES: usize = 64 << 20;

/// A domain, and a key in it.
pub(super) type Name = (String, Vec<String>);

/// The differences of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyDifferences {
    pub counts: Counts,
    /// Line of the first difference.
    pub line: u64,
    /// Time of the first difference.
    pub at: Micros,
    /// Kind of the first difference.
    pub kind: DifferenceKind,
    /// Limit that made the first difference.
    pub limit: Option<Box<str>>,
    /// Upper bound of the differences that were missed while the key was not kept.
    pub missed_at_most: u64,
}

/// One difference of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Difference<'a> {
    pub line: u64,
    pub at: Micros,
    pub kind: DifferenceKind,
    pub limit: Option<&'a str>,
}

/// Keys that are treated differently. If there are too many, the half with the fewest differences is dropped, so that a
/// key that differs often is found however late it first occurs.
pub(super) struct DifferingKeys {
    keys: HashMap<Name, KeyDifferences, foldhash::fast::RandomState>,
    bytes: usize,
    max_keys: usize,
    /// Largest number of keys that were kept at a time.
    most: usize,
    dropped: u64,
    /// Upper bound of the differences of any dropped key.
    missed_at_most: u64,
}

impl Default for DifferingKeys {
    fn default() -> Self {
        Self { keys: HashMap::default(), bytes: 0, max_keys: MAX_KEYS, most: 0, dropped: 0, missed_at_most: 0 }
    }
}

impl DifferingKeys {
    /// Records another difference of a key.
    pub(super) fn add(&mut self, name: Name, difference: Difference<'_>) {
        if let Some(differences) = self.keys.get_mut(&name) {
            return differences.counts.add(difference.kind);
        }
        if self.keys.len() >= self.max_keys || self.bytes >= MAX_KEYS_BYTES {
            self.drop_half();
        }
        self.bytes += bytes(&name);
        let mut counts = Counts::default();
        counts.add(difference.kind);
        let Difference { line, at, kind, limit } = difference;
        let (limit, missed_at_most) = (limit.map(Box::from), self.missed_at_most);
        self.keys.insert(name, KeyDifferences { counts, line, at, kind, limit, missed_at_most });
        self.most = self.most.max(self.keys.len());
    }

    fn drop_half(&mut self) {
        let mut all: Vec<_> = std::mem::take(&mut self.keys).into_iter().collect();
        all.sort_unstable_by_key(|(_, differences)| std::cmp::Reverse(differences.counts.sum()));
        let before = all.len();
        self.bytes = 0;
        let (max_keys, max_bytes) = (self.max_keys / 2, MAX_KEYS_BYTES / 2);
        for (name, differences) in all {
            let bytes = bytes(&name);
            if self.keys.len() < max_keys && self.bytes + bytes <= max_bytes {
                self.bytes += bytes;
                self.keys.insert(name, differences);
            } else {
                self.missed_at_most = self.missed_at_most.max(differences.counts.sum() + differences.missed_at_most);
            }
        }
        self.dropped += (before - self.keys.len()) as u64;
    }

    /// Returns the number of keys; a lower bound if some were dropped.
    pub(super) fn count(&self) -> usize {
        self.most
    }

    /// Returns how many times a key was dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the `most` keys with the most differences, in descending order.
    pub(super) fn top(&self, most: usize) -> Vec<(&Name, &KeyDifferences)> {
        let mut all: Vec<_> = self.keys.iter().collect();
        all.sort_unstable_by_key(|(_, differences)| (std::cmp::Reverse(differences.counts.sum()), differences.line));
        all.truncate(most);
        all
    }
}

fn bytes((domain, key): &Name) -> usize {
    domain.len() + key.iter().map(|segment| segment.len() + size_of::<String>()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(differing: &mut DifferingKeys, key: &str, line: u64) {
        let difference = Difference { line, at: 0, kind: DifferenceKind::RefusedOnlyByA, limit: Some("l") };
        differing.add((String::new(), vec![key.to_owned()]), difference);
    }

    fn top(differing: &DifferingKeys, most: usize) -> Vec<(String, u64, u64, u64)> {
        let seen = |(name, differences): (&Name, &KeyDifferences)| {
            (name.1[0].clone(), differences.counts.sum(), differences.line, differences.missed_at_most)
        };
        differing.top(most).into_iter().map(seen).collect()
    }

    #[test]
    fn keys_are_ordered_by_differences_then_by_first_line() {
        let mut differing = DifferingKeys::default();
        for (key, line) in [("a", 1), ("b", 2), ("c", 3), ("b", 4), ("d", 5)] {
            differ(&mut differing, key, line);
        }
        assert_eq!(top(&differing, 3), [("b".into(), 2, 2, 0), ("a".into(), 1, 1, 0), ("c".into(), 1, 3, 0)]);
        assert_eq!((differing.count(), differing.dropped()), (4, 0));
    }

    #[test]
    fn keys_with_the_fewest_differences_are_dropped_at_the_bound() {
        let mut differing = DifferingKeys { max_keys: 4, ..DifferingKeys::default() };
        for (key, line) in [("a", 1), ("a", 2), ("b", 3), ("c", 4), ("c", 5), ("c", 6), ("d", 7)] {
            differ(&mut differing, key, line);
        }
        // `b` and `d` are dropped, and any new key may have been one of them.
        differ(&mut differing, "e", 8);
        differ(&mut differing, "b", 9);
        let expected = [("c".into(), 3, 4, 0), ("a".into(), 2, 1, 0), ("e".into(), 1, 8, 1), ("b".into(), 1, 9, 1)];
        assert_eq!(top(&differing, 9), expected);
        assert_eq!(differing.dropped(), 2);
        // A key may be dropped again, so the differences that it may have missed add up.
        differ(&mut differing, "f", 10);
        assert_eq!(top(&differing, 9)[2], ("f".into(), 1, 10, 2));
    }

    #[test]
    fn long_keys_are_bounded_in_bytes() {
        let mut differing = DifferingKeys::default();
        let long = "x".repeat(1 << 20);
        for number in 0..100 {
            differ(&mut differing, &format!("{number}{long}"), number);
            assert!(differing.bytes <= MAX_KEYS_BYTES + (1 << 20) + 64);
        }
        assert!(differing.dropped() > 0);
    }
}
