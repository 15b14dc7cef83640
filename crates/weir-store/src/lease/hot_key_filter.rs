//! Hot-key detection in constant memory: an array of counters indexed by hash.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_core::domain::Micros;

/// Number of counters. Colliding keys seem hotter than they are, which costs at most a lease for each.
const COUNTERS: usize = 16_384;
/// Length of a counting slot: 100 ms, in microseconds.
const SLOT_MICROS: Micros = 100_000;
/// Requests within a slot from which on a lease is worth its renewals.
const HOT: u64 = 3;

/// Counts requests for keys that have no lease.
pub(super) struct HotKeyFilter {
    /// The slot number, with the number of requests in the low byte.
    counters: Box<[AtomicU64]>,
}

impl Default for HotKeyFilter {
    fn default() -> Self {
        Self { counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl HotKeyFilter {
    /// Counts a request for a key and returns whether the key is hot.
    pub(super) fn is_hot(&self, hash: u64, now: Micros) -> bool {
        let counter = &self.counters[hash as usize % COUNTERS];
        let slot = (now / SLOT_MICROS).unsigned_abs() << 8;
        let before = counter.load(Relaxed);
        let count = if before & !0xff == slot { before & 0xff } else { 0 };
        // A concurrent increment may be lost; the next request makes up for it.
        counter.store(slot | (count + 1).min(0xff), Relaxed);
        count + 1 >= HOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_from_the_third_request_within_a_slot() {
        let (filter, start) = (HotKeyFilter::default(), 1_700_000_000_000_000);
        let requests = |at: Micros, count: usize| (0..count).map(|_| filter.is_hot(7, at)).collect::<Vec<_>>();
        assert_eq!(requests(start, 4), [false, false, true, true]);
        assert_eq!(requests(start + SLOT_MICROS, 2), [false; 2]);
        assert!(!filter.is_hot(8, start + SLOT_MICROS), "another key");
        assert_eq!(requests(start + SLOT_MICROS, 300).pop(), Some(true));
        assert!(!filter.is_hot(7, start + 2 * SLOT_MICROS));
    }
}
