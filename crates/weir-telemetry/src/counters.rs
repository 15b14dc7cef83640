//! Sharded counters: checks on all threads add to them, each thread in its own shard. The
//! exporter's counters start with the first count, and receive the increments when they are read.

use std::{
    collections::HashMap,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::Counter;
use parking_lot::Mutex;

use crate::thread_shard::{self, SHARDS};

/// Number of counters that share a cache line pair.
const LINE: usize = 16;

/// Sharded counters in front of [`Counter`]s, by their positions.
pub struct ShardedCounters {
    len: usize,
    factory: Box<CounterFactory>,
    /// The counters that have started.
    counters: Mutex<HashMap<usize, Total>>,
    /// The increments of each shard since the last flush; allocated at its first count.
    shards: [OnceLock<Box<[Line]>>; SHARDS],
}

/// Returns the counters that start with the first count at a position, each with its position.
/// Those that have started already are ignored.
type CounterFactory = dyn Fn(usize) -> Vec<(usize, Counter)> + Send + Sync;

/// A counter, and the sum of its increments.
struct Total {
    counter: Counter,
    count: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Line([AtomicU64; LINE]);

impl ShardedCounters {
    /// Makes `len` counters at zero.
    pub(crate) fn new(len: usize, factory: Box<CounterFactory>) -> Self {
        Self { len, factory, counters: Mutex::default(), shards: [const { OnceLock::new() }; SHARDS] }
    }

    /// Makes counters that have all started.
    pub(crate) fn of(counters: Vec<Counter>) -> Self {
        Self::new(counters.len(), Box::new(move |index| vec![(index, counters[index].clone())]))
    }

    /// Adds one to the counter at `index`. An index out of range is ignored.
    #[inline]
    pub fn add(&self, index: usize) {
        self.add_many(index, 1);
    }

    /// Adds `count` to the counter at `index`. An index out of range is ignored.
    #[inline]
    pub fn add_many(&self, index: usize, count: u64) {
        let shard = self.shards[thread_shard::mine()].get_or_init(|| self.shard());
        if let Some(line) = shard.get(index / LINE) {
            line.0[index % LINE].fetch_add(count, Ordering::Relaxed);
        }
    }

    #[cold]
    fn shard(&self) -> Box<[Line]> {
        (0..self.len.div_ceil(LINE)).map(|_| Line::default()).collect()
    }

    /// Flushes the increments to the exporter's counters.
    pub(crate) fn flush(&self) {
        let mut counters = self.counters.lock();
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            for (index, number) in shard.iter().flat_map(|line| &line.0).take(self.len).enumerate() {
                // Read first: most are zero, and a write would take their cache lines from the threads that count
                // there.
                if number.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                if !counters.contains_key(&index) {
                    for (index, counter) in (self.factory)(index) {
                        counters.entry(index).or_insert(Total { counter, count: 0 });
                    }
                }
                if let Some(total) = counters.get_mut(&index) {
                    let added = number.swap(0, Ordering::Relaxed);
                    total.counter.increment(added);
                    total.count += added;
                }
            }
        }
    }

    /// Returns the total of each counter, by position.
    pub fn totals(&self) -> Vec<u64> {
        self.flush();
        let mut totals = vec![0; self.len];
        for (index, total) in &*self.counters.lock() {
            totals[*index] = total.count;
        }
        totals
    }
}

impl Drop for ShardedCounters {
    fn drop(&mut self) {
        self.flush();
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
    fn counters_begin_with_the_first_count_of_their_kind() {
        const KIND: usize = 3;
        let started: Arc<Mutex<HashMap<usize, Arc<AtomicU64>>>> = Arc::default();
        let factory = {
            let started = Arc::clone(&started);
            move |index: usize| {
                let kind = index - index % KIND;
                let counter = |at| Counter::from_arc(Arc::clone(started.lock().entry(at).or_default()));
                (kind..kind + KIND).map(|at| (at, counter(at))).collect()
            }
        };
        let sharded = ShardedCounters::new(3 * KIND, Box::new(factory));
        assert_eq!((sharded.totals(), started.lock().len()), (vec![0; 3 * KIND], 0));
        sharded.add(4);
        sharded.add_many(3, 7);
        assert_eq!(sharded.totals(), [0, 0, 0, 7, 1, 0, 0, 0, 0]);
        sharded.add(4);
        drop(sharded);
        let mut exported: Vec<_> =
            started.lock().iter().map(|(at, count)| (*at, count.load(Ordering::Relaxed))).collect();
        exported.sort_unstable();
        assert_eq!(exported, [(3, 7), (4, 2), (5, 0)]);
    }

    #[test]
    fn concurrent_reads_neither_lose_nor_double_counts() {
        const TIMES: u64 = 10_000;
        let targets: Vec<_> = (0..20).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let counters = targets.iter().map(|target| Counter::from_arc(Arc::clone(target))).collect();
        let sharded = ShardedCounters::of(counters);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    sharded.flush();
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
