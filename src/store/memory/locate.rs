//! From a plan to places: each part of a key is hashed once.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use crate::plan::Plan;

/// Where one level's state belongs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Which shard.
    pub shard: usize,
    /// The hash of the state's name within it.
    pub state: u32,
}

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

/// The places of a plan's states in a store of so many shards, level by level.
pub fn places(plan: &Plan<'_>, hasher: &RandomState, shards: usize) -> impl Iterator<Item = Place> {
    let mut last: Option<(&[u8], u64)> = None;
    plan.levels().iter().map(move |level| {
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
    })
}

/// Mixes the hash of a key with that of a limit, by the halves of their product.
fn fold(key: u64, limit: u64) -> u32 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * u128::from(limit | 1);
    let mixed = (product >> 64) as u64 ^ product as u64;
    (mixed >> 32) as u32 ^ mixed as u32
}
