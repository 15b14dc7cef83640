//! A policy tried in virtual time, in a memory of its own: nothing of it is counted or seen elsewhere.

use std::sync::Arc;

use weir_core::domain::{ManualClock, Micros};
use weir_policy::Policy;
use weir_store::{MemoryStore, memory::MemorySettings};

use super::{Answer, CheckError, Request, decide::filled, request::ensure_checkable};

/// Most states of a simulation of a few keys.
const MAX_STATES: usize = 10_000;

/// A memory in virtual time, empty at first.
pub struct Simulation {
    clock: Arc<ManualClock>,
    store: MemoryStore<Arc<ManualClock>>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self::of(MAX_STATES)
    }
}

impl Simulation {
    /// One that has room for so many states.
    pub fn of(max_states: usize) -> Self {
        let clock = Arc::new(ManualClock::default());
        let settings = MemorySettings { max_keys: max_states, ..MemorySettings::default() };
        Self { store: MemoryStore::new(settings, Arc::clone(&clock)), clock }
    }

    /// Forgets a key at this moment, with `subtree` all below it too.
    pub fn reset(&self, at: Micros, policy: &Policy, request: &Request<'_>, subtree: bool) {
        self.clock.set(at);
        self.store.reset_now(&request.key, request.anchor(policy), subtree);
    }

    /// Decides a request at this moment by a policy, which is the same for all of a simulation.
    ///
    /// # Errors
    /// [`CheckError`], but never of a store.
    pub fn check<'a>(
        &self,
        at: Micros,
        policy: &'a Policy,
        request: &'a Request<'_>,
    ) -> Result<Answer<'a>, CheckError> {
        self.clock.set(at);
        let plan = request.plan(policy, 0, false)?;
        ensure_checkable(&plan)?;
        let verdict = self.store.verdict(&plan);
        Ok(filled(&plan, &verdict, |plan, verdict, answer: &mut Answer<'_>| {
            answer.fill(plan, plan.levels(), verdict);
        }))
    }
}
