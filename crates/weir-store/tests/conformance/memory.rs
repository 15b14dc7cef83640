//! The memory store under test.

use std::sync::Arc;

use weir_core::{
    domain::{Key, ManualClock, Micros},
    plan::{Decisions, Plan},
};
use weir_store::{MemoryStore, ResetDone};

use super::{
    holds::in_memory,
    store_under_test::{Memories, StoreUnderTest},
};

pub struct InMemory {
    clock: Arc<ManualClock>,
    store: MemoryStore<Arc<ManualClock>>,
}

impl InMemory {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { store: in_memory(&clock), clock }
    }
}

impl StoreUnderTest for InMemory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn forget(&mut self) {
        *self = Self::new();
    }

    async fn decide(&mut self, plan: &Plan<'_>, now: Micros) -> Decisions {
        self.clock.set(now);
        self.store.verdict(plan).decisions
    }

    async fn reset(&mut self, key: &Key, anchor: u8, subtree: bool, now: Micros) -> ResetDone {
        self.clock.set(now);
        let done = self.store.reset_now(key, anchor, subtree);
        assert!(!done.scanned);
        done
    }

    async fn states(&mut self, _now: Micros) -> Option<Memories> {
        None
    }
}
