//! From a plan to places: each part of a key is hashed once.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::plan::Plan;

/// Where one level's state belongs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Which shard.
    pub shard: usize,
    /// The hash of the state's name within it.
    pub state: u32,
}

/// Where the states of a plan belong, level by level.
pub struct Places(SmallVec<[Place; 4]>);

/// The hash of an encoded key, seeded for this process.
pub fn hash(hasher: &RandomState, bytes: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// The shard for the hash of an anchor, whose upper half it spreads over the shards.
pub fn shard_of(anchor: u64, shards: usize) -> usize {
    ((anchor >> 32) * shards as u64 >> 32) as usize
}

impl Places {
    /// The places of a plan in a store of so many shards.
    pub fn of(plan: &Plan<'_>, hasher: &RandomState, shards: usize) -> Self {
        let mut last: Option<(&[u8], u64)> = None;
        let places = plan.levels().iter().map(|level| {
            let (anchor_path, path) = (level.anchor_path(), level.path());
            let anchor = match last {
                Some((before, anchor)) if std::ptr::eq(before, anchor_path) => anchor,
                _ => hash(hasher, anchor_path),
            };
            last = Some((anchor_path, anchor));
            let below = &path[anchor_path.len()..];
            let rest = if below.is_empty() { 0 } else { hash(hasher, below) };
            let state = fold(anchor ^ rest.rotate_left(17), hash(hasher, level.limit.ident()));
            Place { shard: shard_of(anchor, shards), state }
        });
        Self(places.collect())
    }

    /// The shards to lock, each once, in the order in which all plans lock.
    pub fn shards(&self) -> SmallVec<[usize; 2]> {
        let mut shards: SmallVec<[usize; 2]> = self.0.iter().map(|place| place.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// The places, in the order of the levels.
    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter()
    }
}

/// Mixes the hash of a key with that of a limit, by the halves of their product.
fn fold(key: u64, limit: u64) -> u32 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * u128::from(limit | 1);
    let mixed = (product >> 64) as u64 ^ product as u64;
    (mixed >> 32) as u32 ^ mixed as u32
}
