//! The offer that a client receives for a key that it may lease.

use super::LeaseTerms;
use crate::plan::Plan;

/// The terms of a lease, and the generation of the limits that they apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The same wherever the same limits are applied; never 0. A hold under other limits must not
    /// be renewed: a level might not know of it.
    pub generation: u64,
    /// The terms of a lease.
    pub terms: LeaseTerms,
}

impl Offer {
    /// Whether a renewal made under this generation is served. A hold under other limits can only
    /// be returned.
    pub fn serves(&self, generation: u64, kept: u64, want: u64) -> bool {
        generation == self.generation || (kept, want) == (0, 0)
    }

    /// Returns the offer for the key of a plan; `None` if it cannot be leased.
    pub fn of(plan: &Plan<'_>) -> Option<Self> {
        let ttl = plan.lease_ttl()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&ttl.to_le_bytes());
        for level in plan.levels() {
            let (path, ident, params) = (level.path(), level.limit.ident(), level.params());
            for part in [path, ident, params.name().as_bytes()] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            let words = params.lua_params();
            hasher.update(&(words.len() as u64).to_le_bytes());
            for word in words {
                hasher.update(&word.to_bits().to_le_bytes());
            }
        }
        let mut word = [0; 8];
        hasher.finalize_xof().fill(&mut word);
        let terms = LeaseTerms::of(plan.levels().iter().map(|level| level.params()), ttl);
        Some(Self { generation: u64::from_le_bytes(word).max(1), terms })
    }
}
