//! The heaviest of many keys in bounded memory: Space-Saving of Metwally, Agrawal and El Abbadi, over weights.
//!
//! With a total weight W over at most N keys held, every key whose true weight is above W / N is among them. The weight
//! reported for a key is its true weight or up to its `error` more; no error is above W / N.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
};

use hashbrown::HashTable;

/// The heaviest keys, each with a value.
pub(super) struct SpaceSaving<T> {
    most: usize,
    hasher: RandomState,
    /// The index in `entries`, by key.
    index_by_key: HashTable<u32>,
    entries: Vec<Entry<T>>,
    /// The bits of the weight and the index of each entry, the lightest first. Weights are finite and never negative,
    /// so their bits have the same order.
    order: BTreeSet<(u64, u32)>,
}

/// A key that is held.
#[derive(Debug)]
pub(super) struct Entry<T> {
    key: Box<[u8]>,
    /// Its weight, or up to `error` more.
    pub weight: f64,
    /// The part of the weight that may belong to keys that it replaced.
    pub error: f64,
    /// The value of the key.
    pub value: T,
}

impl<T> SpaceSaving<T> {
    /// Creates a sketch of at most `most` keys, at least one.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.clamp(1, u32::MAX as usize),
            hasher: RandomState::new(),
            index_by_key: HashTable::new(),
            entries: Vec::new(),
            order: BTreeSet::new(),
        }
    }

    /// Adds to the weight of a key, and returns its value. A key that is not held replaces the lightest one if the list
    /// is full; `make` creates its value.
    pub(super) fn add(&mut self, key: &[u8], weight: f64, make: impl FnOnce() -> T) -> &mut T {
        let hash = self.hasher.hash_one(key);
        let found = self.index_by_key.find(hash, |index| *self.entries[*index as usize].key == *key).copied();
        let index = match (found, self.order.first()) {
            (Some(index), _) => index,
            (None, Some(&(_, lightest))) if self.entries.len() >= self.most => self.replace(lightest, key, make()),
            (None, _) => self.grow(key, make()),
        };
        if found.is_none() {
            let (entries, hasher) = (&self.entries, &self.hasher);
            self.index_by_key.insert_unique(hash, index, |index| hasher.hash_one(&*entries[*index as usize].key));
        }
        let entry = &mut self.entries[index as usize];
        self.order.remove(&(entry.weight.to_bits(), index));
        entry.weight += weight;
        self.order.insert((entry.weight.to_bits(), index));
        &mut entry.value
    }

    /// Returns the keys held, in no order.
    pub(super) fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    /// Multiplies every weight, and lets `each` do the same with the values.
    pub(super) fn scale(&mut self, by: f64, each: impl Fn(&mut T)) {
        for entry in &mut self.entries {
            entry.weight *= by;
            entry.error *= by;
            each(&mut entry.value);
        }
        self.order = self.entries.iter().zip(0..).map(|(entry, index)| (entry.weight.to_bits(), index)).collect();
    }

    fn grow(&mut self, key: &[u8], value: T) -> u32 {
        let index = self.entries.len() as u32;
        self.entries.push(Entry { key: key.into(), weight: 0.0, error: 0.0, value });
        index
    }

    fn replace(&mut self, index: u32, key: &[u8], value: T) -> u32 {
        let hash = self.hasher.hash_one(&*self.entries[index as usize].key);
        if let Ok(found) = self.index_by_key.find_entry(hash, |other| *other == index) {
            found.remove();
        }
        let entry = &mut self.entries[index as usize];
        (entry.key, entry.error, entry.value) = (key.into(), entry.weight, value);
        index
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Returns a stream in which low keys are frequent, deterministic for a seed.
    fn stream(seed: u64, length: usize, keys: u64) -> impl Iterator<Item = u64> {
        let mut word = seed;
        (0..length).map(move |_| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let share = (word >> 11) as f64 / (1_u64 << 53) as f64;
            (share.powi(4) * keys as f64) as u64
        })
    }

    #[test]
    fn errors_stay_within_the_bound_and_heavy_keys_are_found() {
        for seed in 1..=20 {
            for most in [1, 7, 50, 400] {
                let (mut exact, mut sketch) = (HashMap::<u64, f64>::new(), SpaceSaving::new(most));
                let mut total = 0.0;
                for (turn, key) in stream(seed, 20_000, 3_000).enumerate() {
                    let weight = [1.0, 16.0, 3.0][turn % 3];
                    sketch.add(&key.to_le_bytes(), weight, || key);
                    *exact.entry(key).or_default() += weight;
                    total += weight;
                }
                let promised = total / most as f64;
                assert!(sketch.entries().len() <= most && sketch.index_by_key.len() == sketch.entries().len());
                let sum: f64 = sketch.entries().iter().map(|entry| entry.weight).sum();
                assert_eq!(sum, total, "every weight belongs to a key");
                for entry in sketch.entries() {
                    let truth = exact[&entry.value];
                    assert!(entry.weight >= truth && entry.weight - entry.error <= truth, "{entry:?}: {truth}");
                    assert!(entry.error <= promised, "{entry:?}: {promised}");
                }
                let held: Vec<_> = sketch.entries().iter().map(|entry| entry.value).collect();
                let missed = exact.iter().find(|(key, weight)| **weight > promised && !held.contains(key));
                assert_eq!(missed, None, "seed {seed}, {most} keys");
            }
        }
    }

    #[test]
    fn counts_are_exact_up_to_the_capacity() {
        let mut sketch = SpaceSaving::new(100);
        stream(3, 5_000, 100).for_each(|key| *sketch.add(&[key as u8], 1.0, || ()) = ());
        let mut exact = [0.0; 100];
        stream(3, 5_000, 100).for_each(|key| exact[key as usize] += 1.0);
        for entry in sketch.entries() {
            assert_eq!((entry.weight, entry.error), (exact[usize::from(entry.key[0])], 0.0));
        }
    }

    #[test]
    fn scaling_keeps_the_order() {
        let mut sketch = SpaceSaving::new(2);
        sketch.add(b"a", 8.0, || 8.0);
        sketch.add(b"b", 2.0, || 2.0);
        sketch.scale(0.5, |value| *value *= 0.5);
        sketch.add(b"c", 1.0, || 0.0);
        let mut held: Vec<_> = sketch.entries().iter().map(|entry| (&*entry.key, entry.weight, entry.error)).collect();
        held.sort_by(|one, other| one.0.cmp(other.0));
        assert_eq!(held, [(&b"a"[..], 4.0, 0.0), (b"c", 2.0, 1.0)]);
    }
}
