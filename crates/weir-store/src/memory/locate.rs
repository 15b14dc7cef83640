//! From a plan to the locations of its states: each part of a key is hashed once.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use weir_core::plan::Plan;

/// Where one level's state belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateLocation {
    /// Which shard.
    pub shard: usize,
    /// The hash of the state's name within it.
    pub state: u32,
}

/// The hash of an encoded key, seeded for this process.
pub(super) fn hash(hasher: &RandomState, bytes: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// The shard for the hash of an anchor, whose upper half it spreads over the shards.
pub(crate) fn shard_of(anchor: u64, shards: usize) -> usize {
    (((anchor >> 32) * shards as u64) >> 32) as usize
}

/// The hash of a state within its shard: of its anchor's hash, what its key has beyond the anchor, and its ident.
fn hash_of_state(hasher: &RandomState, anchor: u64, beyond: &[u8], ident: &[u8]) -> u32 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u64(anchor);
    hasher.write(beyond);
    hasher.write(ident);
    let state = hasher.finish();
    (state >> 32) as u32 ^ state as u32
}

/// The location of the state `ident` on the key `path`, whose first `anchor_end` bytes are its anchor.
pub(super) fn locate(
    hasher: &RandomState,
    path: &[u8],
    anchor_end: usize,
    ident: &[u8],
    shards: usize,
) -> StateLocation {
    let (anchor_path, beyond) = path.split_at(anchor_end.min(path.len()));
    let anchor = hash(hasher, anchor_path);
    StateLocation { shard: shard_of(anchor, shards), state: hash_of_state(hasher, anchor, beyond, ident) }
}

/// The locations of a plan's states in a store of so many shards, level by level.
pub(super) fn locate_all(plan: &Plan<'_>, hasher: &RandomState, shards: usize) -> impl Iterator<Item = StateLocation> {
    let mut last: Option<(&[u8], u64)> = None;
    plan.levels().iter().map(move |level| {
        let (anchor_path, path) = (level.anchor_path(), level.path());
        let anchor = match last {
            Some((before, anchor)) if std::ptr::eq(before, anchor_path) => anchor,
            _ => hash(hasher, anchor_path),
        };
        last = Some((anchor_path, anchor));
        let state = hash_of_state(hasher, anchor, &path[anchor_path.len()..], level.limit.ident());
        StateLocation { shard: shard_of(anchor, shards), state }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use weir_core::{
        algorithm::{Bounds, find},
        domain::{Charge, Key},
        plan::{Level, Limit, Origin},
    };

    #[test]
    fn state_hashes_are_distinct_and_shards_are_filled_evenly() {
        const KEYS: usize = 20_000;
        let params = (find("gcra").unwrap().parse)(&find("gcra").unwrap().examples[0], &Bounds::default()).unwrap();
        let limits = [0, 1].map(|ordinal| Limit::new(Origin::Policy, None, "*", ordinal, false, params.clone()));
        let (mut states, mut shards) = (HashSet::new(), [0_usize; 10]);
        let hasher = RandomState::default();
        for user in 0..KEYS {
            let key = Key::new("", &["user", &user.to_string(), "trade"]).unwrap();
            let levels = limits.iter().flat_map(|limit| [2, 3].map(|depth| Level::new(&key, depth, 2, limit, 1)));
            let plan = Plan::new(levels.collect(), Charge::AllOrNothing, None);
            let locations: Vec<_> = locate_all(&plan, &hasher, shards.len()).collect();
            assert!(locations.iter().all(|location| location.shard == locations[0].shard), "one anchor, one shard");
            for (level, found) in plan.levels().iter().zip(&locations) {
                let alone = locate(&hasher, level.path(), level.anchor_path().len(), level.limit.ident(), shards.len());
                assert_eq!((alone.shard, alone.state), (found.shard, found.state));
            }
            states.extend(locations.iter().map(|location| location.state));
            shards[locations[0].shard] += 1;
        }
        // By chance two of 80,000 share 32 bits less than once; shards differ by a few dozen.
        assert!(states.len() > 4 * KEYS - 20, "{} distinct hashes", states.len());
        assert!(shards.iter().all(|count| count.abs_diff(KEYS / shards.len()) < 500), "{shards:?}");
    }
}
