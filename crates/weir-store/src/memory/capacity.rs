//! The capacity of the store, and how much of it an entry uses.

use std::sync::atomic::Ordering;

use super::{MemoryStore, WhenFull};
use weir_core::plan::Limit;

/// Bytes per additional unit of [`MemorySettings::max_keys`]. A state counts as one, and one more for every
/// `WEIGHT_BYTES` of client-chosen data: its name, and the marks that a limit in the request allows.
pub const WEIGHT_BYTES: usize = 256;

/// Bytes of a mark.
pub(super) const WORD_BYTES: usize = 8;

/// Returns the capacity used by an entry with this many client-chosen bytes.
pub fn weight(bytes: usize) -> u32 {
    1 + (bytes / WEIGHT_BYTES) as u32
}

/// Returns the most bytes of marks for a limit that the request brought; 0 for a limit of the policy.
#[inline]
pub(super) fn request_mark_bytes(limit: &Limit) -> usize {
    if limit.is_of_policy() { 0 } else { limit.params.marks_max() as usize * WORD_BYTES }
}

/// The settings of a memory store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// Most states: one for each limit and actual key. A state with a long name, or with many marks for a limit that
    /// the request brought, counts as several ([`WEIGHT_BYTES`]).
    pub max_keys: usize,
    /// Behavior once `max_keys` is reached.
    pub when_full: WhenFull,
}

impl Default for MemorySettings {
    /// A million states, about 100 MB; requests beyond that are refused.
    fn default() -> Self {
        Self { max_keys: 1_000_000, when_full: WhenFull::default() }
    }
}

impl<C> MemoryStore<C> {
    /// Reserves capacity for `count` entries, or none.
    pub(super) fn reserve_capacity(&self, count: usize) -> bool {
        let more = |keys: usize| Some(keys + count).filter(|keys| *keys <= self.settings.max_keys);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Reserves capacity for up to `count` entries and returns how many.
    pub(super) fn reserve_up_to(&self, count: usize) -> usize {
        (0..count).take_while(|_| self.reserve_capacity(1)).count()
    }
}
