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
    (((anchor >> 32) * shards as u64) >> 32) as usize
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
        let mut hasher = hasher.build_hasher();
        hasher.write_u64(anchor);
        hasher.write(&path[anchor_path.len()..]);
        hasher.write(level.limit.ident());
        let state = hasher.finish();
        Place { shard: shard_of(anchor, shards), state: (state >> 32) as u32 ^ state as u32 }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{
        algorithm::{Bounds, find},
        domain::{Charge, Key},
        plan::{Level, Limit, Origin},
    };

    #[test]
    fn states_have_hashes_of_their_own_and_shards_are_filled_evenly() {
        const KEYS: usize = 20_000;
        let params = (find("gcra").unwrap().parse)(&find("gcra").unwrap().examples[0], &Bounds::default()).unwrap();
        let limits = [0, 1].map(|ordinal| Limit::new(Origin::Policy, None, "*", ordinal, false, params.clone()));
        let (mut states, mut shards) = (HashSet::new(), [0_usize; 10]);
        let hasher = RandomState::default();
        for user in 0..KEYS {
            let key = Key::new("", &["user", &user.to_string(), "trade"]).unwrap();
            let levels = limits.iter().flat_map(|limit| [2, 3].map(|depth| Level::new(&key, depth, 2, limit, 1)));
            let plan = Plan::new(levels.collect(), Charge::AllOrNothing, None);
            let places: Vec<_> = places(&plan, &hasher, shards.len()).collect();
            assert!(places.iter().all(|place| place.shard == places[0].shard), "one anchor, one shard");
            states.extend(places.iter().map(|place| place.state));
            shards[places[0].shard] += 1;
        }
        // By chance two of 80,000 share 32 bits less than once; shards differ by a few dozen.
        assert!(states.len() > 4 * KEYS - 20, "{} distinct hashes", states.len());
        assert!(shards.iter().all(|count| count.abs_diff(KEYS / shards.len()) < 500), "{shards:?}");
    }
}
