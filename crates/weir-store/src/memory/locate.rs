//! Locations of a plan's states. Each part of a key is hashed once.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;

use weir_core::plan::Plan;

/// The location of one level's state.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateLocation {
    /// Index of the shard.
    pub shard: usize,
    /// Hash of the state's name within the shard.
    pub state: u32,
}

/// Hashes an encoded key with a random seed of this process. A shard is a range of the hash's upper bits, which
/// foldhash's fast hash, made for hash tables, spreads unevenly under some seeds.
pub(super) fn hash(hasher: &RandomState, bytes: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// Maps the upper half of an anchor's hash to a shard.
pub(crate) fn shard_of(anchor: u64, shards: usize) -> usize {
    (((anchor >> 32) * shards as u64) >> 32) as usize
}

/// Hashes a state within its shard: the anchor's hash, the key's bytes beyond the anchor, and the limit's ident.
fn hash_of_state(hasher: &RandomState, anchor: u64, beyond: &[u8], ident: &[u8]) -> u32 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u64(anchor);
    hasher.write(beyond);
    hasher.write(ident);
    let state = hasher.finish();
    (state >> 32) as u32 ^ state as u32
}

/// Locates the state of the limit `ident` on the key `path`, whose first `anchor_end` bytes are its anchor.
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

/// Locates a plan's states in a store with `shards` shards, level by level.
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
        let params = (find("gcra").unwrap().parse)(find("gcra").unwrap().examples[0], &Bounds::default()).unwrap();
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
        // The expected number of collisions of 32 bits among 80,000 states is below 1; shards differ by a few dozen.
        assert!(states.len() > 4 * KEYS - 20, "{} distinct hashes", states.len());
        assert!(shards.iter().all(|count| count.abs_diff(KEYS / shards.len()) < 500), "{shards:?}");
    }
}
