//! Many counters that checks add to on all threads, each in numbers of its own; the exporter's counters learn of them when
//! they are read.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use metrics::Counter;

use crate::thread_shard::{self, SHARDS};

/// Numbers that move between processors together.
const LINE: usize = 16;

/// Sharded counters in front of [`Counter`]s, by their positions.
pub struct ShardedCounters {
    counters: Box<[Counter]>,
    /// The totals added to the counters.
    totals: Box<[AtomicU64]>,
    /// The increments of each thread since the last flush; nothing where it has not counted yet.
    shards: [OnceLock<Box<[Line]>>; SHARDS],
}

#[derive(Default)]
#[repr(align(128))]
struct Line([AtomicU64; LINE]);

impl ShardedCounters {
    /// Nothing added yet to any of `counters`.
    pub(crate) fn new(counters: impl IntoIterator<Item = Counter>) -> Self {
        let counters: Box<[_]> = counters.into_iter().collect();
        let totals = counters.iter().map(|_| AtomicU64::new(0)).collect();
        Self { counters, totals, shards: [const { OnceLock::new() }; SHARDS] }
    }

    /// Adds one to the counter at `index`. One that is not there is not counted.
    #[inline]
    pub fn add(&self, index: usize) {
        self.add_many(index, 1);
    }

    /// Adds `count` likewise.
    #[inline]
    pub fn add_many(&self, index: usize, count: u64) {
        let shard = self.shards[thread_shard::mine()].get_or_init(|| self.shard());
        if let Some(line) = shard.get(index / LINE) {
            line.0[index % LINE].fetch_add(count, Ordering::Relaxed);
        }
    }

    #[cold]
    fn shard(&self) -> Box<[Line]> {
        (0..self.counters.len().div_ceil(LINE)).map(|_| Line::default()).collect()
    }

    /// Tells the counters what was added since the last time.
    pub(crate) fn settle(&self) {
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            let numbers = shard.iter().flat_map(|line| &line.0);
            for (number, (counter, total)) in numbers.zip(self.counters.iter().zip(&self.totals)) {
                // Read first: most are idle, and writing would take their lines from who counts there.
                if number.load(Ordering::Relaxed) > 0 {
                    let added = number.swap(0, Ordering::Relaxed);
                    counter.increment(added);
                    total.fetch_add(added, Ordering::Relaxed);
                }
            }
        }
    }

    /// The total of each counter, by position.
    pub fn totals(&self) -> Vec<u64> {
        self.settle();
        self.totals.iter().map(|total| total.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for ShardedCounters {
    fn drop(&mut self) {
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicBool},
        thread,
    };

    use super::*;

    #[test]
    fn concurrent_reads_neither_lose_nor_double_counts() {
        const TIMES: u64 = 10_000;
        let targets: Vec<_> = (0..20).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let sharded = ShardedCounters::new(targets.iter().map(|target| Counter::from_arc(Arc::clone(target))));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    sharded.settle();
                }
            });
            let counting = || {
                (0..TIMES).for_each(|_| sharded.add(19));
                sharded.add_many(3, 7);
                sharded.add(20);
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(counting)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        let totals = sharded.totals();
        drop(sharded);
        let exported: Vec<_> = targets.iter().map(|target| target.load(Ordering::Relaxed)).collect();
        assert_eq!((exported[19], exported[3]), (3 * TIMES, 3 * 7));
        assert_eq!(exported.iter().sum::<u64>(), 3 * TIMES + 3 * 7);
        assert_eq!(totals, exported);
    }
}
