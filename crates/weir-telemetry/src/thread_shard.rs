//! The shard in which each thread counts, so that threads that count the same thing do not share a cache line.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of shards; with more threads, several share one.
pub(crate) const SHARDS: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

/// Returns the shard of the calling thread, below [`SHARDS`].
#[inline]
pub(crate) fn mine() -> usize {
    MINE.with(|shard| *shard)
}
