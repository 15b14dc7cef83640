//! The keys that are treated differently, up to a bound.

use std::collections::HashMap;

use weir_core::domain::Micros;

use super::difference::{Counts, How};

/// Most keys that are kept.
const MAX_KEYS: usize = 100_000;
/// Most bytes of their names.
const MAX_KEYS_BYTES: usize = 64 << 20;

/// A key, behind its domain.
pub(super) type Name = (String, Vec<String>);

/// How a key was treated differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Differed {
    pub counts: Counts,
    /// The first time: the line,
    pub line: u64,
    /// when,
    pub at: Micros,
    /// how,
    pub how: How,
    /// and by which limit.
    pub limit: Option<Box<str>>,
    /// How often it may have differed before, while it was not kept.
    pub missed_at_most: u64,
}

/// One time that a key was treated differently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Once<'a> {
    pub line: u64,
    pub at: Micros,
    pub how: How,
    pub limit: Option<&'a str>,
}

/// Keys that are treated differently. When there are too many, the half that differs least is dropped, so that a key that
/// differs often is found however late it comes.
pub(super) struct DifferingKeys {
    keys: HashMap<Name, Differed, foldhash::fast::RandomState>,
    bytes: usize,
    max_keys: usize,
    /// The most that were kept at a time.
    most: usize,
    dropped: u64,
    /// The most often that any dropped key can have differed.
    missed_at_most: u64,
}

impl Default for DifferingKeys {
    fn default() -> Self {
        Self { keys: HashMap::default(), bytes: 0, max_keys: MAX_KEYS, most: 0, dropped: 0, missed_at_most: 0 }
    }
}

impl DifferingKeys {
    /// The key was treated differently once more.
    pub(super) fn add(&mut self, name: Name, once: Once<'_>) {
        if let Some(differed) = self.keys.get_mut(&name) {
            return differed.counts.add(once.how);
        }
        if self.keys.len() >= self.max_keys || self.bytes >= MAX_KEYS_BYTES {
            self.drop_half();
        }
        self.bytes += bytes(&name);
        let mut counts = Counts::default();
        counts.add(once.how);
        let Once { line, at, how, limit } = once;
        let (limit, missed_at_most) = (limit.map(Box::from), self.missed_at_most);
        self.keys.insert(name, Differed { counts, line, at, how, limit, missed_at_most });
        self.most = self.most.max(self.keys.len());
    }

    fn drop_half(&mut self) {
        let mut all: Vec<_> = std::mem::take(&mut self.keys).into_iter().collect();
        all.sort_unstable_by_key(|(_, differed)| std::cmp::Reverse(differed.counts.sum()));
        let before = all.len();
        self.bytes = 0;
        let (max_keys, max_bytes) = (self.max_keys / 2, MAX_KEYS_BYTES / 2);
        for (name, differed) in all {
            let bytes = bytes(&name);
            if self.keys.len() < max_keys && self.bytes + bytes <= max_bytes {
                self.bytes += bytes;
                self.keys.insert(name, differed);
            } else {
                self.missed_at_most = self.missed_at_most.max(differed.counts.sum() + differed.missed_at_most);
            }
        }
        self.dropped += (before - self.keys.len()) as u64;
    }

    /// How many there are; at least so many, where some were let go.
    pub(super) fn count(&self) -> usize {
        self.most
    }

    /// How many times one was let go.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The `most` that differ most, from those that do most.
    pub(super) fn top(&self, most: usize) -> Vec<(&Name, &Differed)> {
        let mut all: Vec<_> = self.keys.iter().collect();
        all.sort_unstable_by_key(|(_, differed)| (std::cmp::Reverse(differed.counts.sum()), differed.line));
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
        let once = Once { line, at: 0, how: How::RefusedOnlyByA, limit: Some("l") };
        differing.add((String::new(), vec![key.to_owned()]), once);
    }

    fn top(differing: &DifferingKeys, most: usize) -> Vec<(String, u64, u64, u64)> {
        let seen = |(name, differed): (&Name, &Differed)| {
            (name.1[0].clone(), differed.counts.sum(), differed.line, differed.missed_at_most)
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
        // A key may be let go again, so what it may have lost adds up.
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
