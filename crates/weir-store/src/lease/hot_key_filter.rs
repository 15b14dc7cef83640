//! Which keys are in demand, in constant memory: a row of counters that keys share by their hashes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_core::domain::Micros;

/// Counters. Keys that share one seem hotter than they are, which costs each an entry in the table at worst.
const COUNTERS: usize = 16_384;
/// The time in which requests are counted.
const SLOT: Micros = 100_000;
/// Requests within that time from which on a lease is worth its renewals.
const HOT: u64 = 3;

/// Counts requests of keys that have no lease.
pub(super) struct HotKeyFilter {
    /// The number of a time slot, and in the low byte the requests in it.
    counters: Box<[AtomicU64]>,
}

impl Default for HotKeyFilter {
    fn default() -> Self {
        Self { counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl HotKeyFilter {
    /// Counts a request of a key: whether it is in demand.
    pub(super) fn is_hot(&self, hash: u64, now: Micros) -> bool {
        let counter = &self.counters[hash as usize % COUNTERS];
        let slot = (now / SLOT).unsigned_abs() << 8;
        let before = counter.load(Relaxed);
        let count = if before & !0xff == slot { before & 0xff } else { 0 };
        // Of two at once one may be lost, which the next one makes up for.
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
        assert_eq!(requests(start + SLOT, 2), [false; 2]);
        assert!(!filter.is_hot(8, start + SLOT), "another key");
        assert_eq!(requests(start + SLOT, 300).pop(), Some(true));
        assert!(!filter.is_hot(7, start + 2 * SLOT));
    }
}
