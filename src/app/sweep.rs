//! Removes expired states from memory, some shards per tick.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use weir_store::AnyStore;

use crate::limiter::Limiter;

/// Minimum number of shards swept per tick, of at least 64 in all. If there are more than 256 shards, a sixteenth is
/// swept, so that a full sweep takes about three seconds.
const MIN_SHARDS_PER_TICK: usize = 16;
/// Interval between ticks of the sweep.
const SWEEP_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn run(limiter: Arc<Limiter<AnyStore>>) {
    let store = limiter.store().memory();
    let shards = store.shard_count();
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        store.sweep((shards / 16).max(MIN_SHARDS_PER_TICK));
    }
}
