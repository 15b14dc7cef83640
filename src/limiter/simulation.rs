//! Simulates a policy in virtual time, in a separate memory store: nothing is counted or visible elsewhere.

use std::sync::Arc;

use weir_core::domain::{ManualClock, Micros};
use weir_policy::Policy;
use weir_store::{MemoryStore, memory::MemorySettings};

use super::{Answer, CheckError, Request, request::ensure_checkable};

/// Maximum number of states in a simulation of a few keys.
const MAX_STATES: usize = 10_000;

/// A memory store in virtual time, initially empty.
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
    /// Returns a simulation with capacity for `max_states` states.
    pub fn of(max_states: usize) -> Self {
        let clock = Arc::new(ManualClock::default());
        let settings = MemorySettings { max_keys: max_states, ..MemorySettings::default() };
        Self { store: MemoryStore::new(settings, Arc::clone(&clock)), clock }
    }

    /// Resets a key at the time `at` and, with `subtree`, all keys below it.
    pub fn reset(&self, at: Micros, policy: &Policy, request: &Request<'_>, subtree: bool) {
        self.clock.set(at);
        self.store.reset_now(&request.key, request.anchor(policy), subtree);
    }

    /// Decides a request at the time `at`. The policy must be the same in all calls of a simulation.
    ///
    /// # Errors
    /// [`CheckError`], but never [`CheckError::Store`].
    pub fn check<'a>(
        &self,
        at: Micros,
        policy: &'a Policy,
        request: &'a Request<'_>,
    ) -> Result<Answer<'a>, CheckError> {
        self.clock.set(at);
        let plan = request.plan(policy, 0, false)?;
        ensure_checkable(&plan)?;
        let mut answer = Answer::default();
        answer.fill(&plan, plan.levels(), &self.store.verdict(&plan));
        Ok(answer)
    }
}
