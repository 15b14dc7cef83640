//! Levels that share a state.

use std::{collections::HashMap, hash::Hash};

use smallvec::SmallVec;

use super::Level;
use crate::domain::request::MAX_LEVELS;

/// Finds the duplicates among more levels than one path has, in linear time.
pub(super) fn find_duplicates_of_many(levels: &mut [Level<'_>]) -> bool {
    // A key's path followed by an ident is the name of one state.
    let firsts = firsts(levels.iter().map(|level| (level.path(), level.limit.ident())));
    let mut duplicates = false;
    for (index, first) in firsts.into_iter().enumerate().filter(|(index, first)| index != first) {
        levels[index].duplicate_of = Some(first as u16);
        duplicates = true;
    }
    duplicates
}

/// Returns the index of the first occurrence of each value. Linear time; short rows need no hash map.
pub fn firsts<K: Eq + Hash>(row: impl ExactSizeIterator<Item = K>) -> SmallVec<[usize; 4]> {
    if row.len() <= MAX_LEVELS {
        let mut seen = SmallVec::<[K; 4]>::new();
        return row
            .enumerate()
            .map(|(index, value)| {
                let first = seen.iter().position(|before| *before == value).unwrap_or(index);
                seen.push(value);
                first
            })
            .collect();
    }
    let mut seen = HashMap::<K, usize, foldhash::fast::RandomState>::default();
    row.enumerate().map(|(index, value)| *seen.entry(value).or_insert(index)).collect()
}

/// Returns the total cost of all levels on each state, at the index of the first of them.
pub(super) fn totals(levels: &[Level<'_>]) -> Box<[i64]> {
    let mut totals = vec![0; levels.len()];
    for (index, level) in levels.iter().enumerate() {
        totals[level.duplicate_of.map_or(index, usize::from)] += level.cost;
    }
    totals.into()
}
