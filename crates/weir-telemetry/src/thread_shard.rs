//! Which of several places a thread counts in, so that threads which count the same share no cache line.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads count apart; more share.
pub(crate) const SHARDS: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

/// The shard of the calling thread, below [`SHARDS`].
#[inline]
pub(crate) fn mine() -> usize {
    MINE.with(|shard| *shard)
}
