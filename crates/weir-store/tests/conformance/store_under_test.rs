//! The interface of stores under test.

use std::collections::BTreeMap;

use weir_core::{
    algorithm::State,
    domain::{Key, Micros},
    plan::{Decisions, Plan, States, decide},
};
use weir_store::ResetDone;

/// A store whose clock the trace sets.
pub trait StoreUnderTest {
    fn name(&self) -> &'static str;

    /// Clears all states.
    async fn forget(&mut self);

    async fn decide(&mut self, plan: &Plan<'_>, now: Micros) -> Decisions;

    async fn reset(&mut self, key: &Key, anchor: u8, subtree: bool, now: Micros) -> ResetDone;

    /// Returns the live states by name; `None` if the store cannot show them.
    async fn states(&mut self, now: Micros) -> Option<Memories>;
}

/// States by name: the encoded key, followed by the limit's ident.
pub type Memories = BTreeMap<Vec<u8>, Memory>;

/// The contents of a state.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// The time at which the state expires.
    pub expires: Micros,
    /// The encoded state.
    pub words: Vec<f64>,
}

/// The reference: the step of the library on a map.
#[derive(Default)]
pub struct Reference(BTreeMap<Vec<u8>, (State, Micros)>);

impl StoreUnderTest for Reference {
    fn name(&self) -> &'static str {
        "the step over a map"
    }

    async fn forget(&mut self) {
        self.0.clear();
    }

    async fn decide(&mut self, plan: &Plan<'_>, now: Micros) -> Decisions {
        let names = plan.levels().iter().map(|level| [level.path(), level.limit.ident()].concat()).collect();
        decide(plan, &mut View { states: &mut self.0, names, now }, now)
    }

    async fn reset(&mut self, key: &Key, _anchor: u8, subtree: bool, now: Micros) -> ResetDone {
        let mut done = ResetDone::default();
        self.0.retain(|name, (_, expires)| {
            let is_own = match name.strip_prefix(key.prefix(key.depth())) {
                Some([weir_core::domain::key::END, ..]) => true,
                Some(_) if subtree => false,
                _ => return true,
            };
            done.existed |= is_own && *expires > now;
            done.removed |= *expires > now;
            false
        });
        done
    }

    async fn states(&mut self, now: Micros) -> Option<Memories> {
        let live = self.0.iter().filter(|(_, (_, expires))| *expires > now);
        let memory = |state: &State, expires: &Micros| Memory { expires: *expires, words: state.encode() };
        Some(live.map(|(name, (state, expires))| (name.clone(), memory(state, expires))).collect())
    }
}

struct View<'s> {
    states: &'s mut BTreeMap<Vec<u8>, (State, Micros)>,
    names: Vec<Vec<u8>>,
    now: Micros,
}

impl States for View<'_> {
    fn get(&self, index: usize) -> Option<&State> {
        self.states.get(&self.names[index]).filter(|(_, expires)| *expires > self.now).map(|(state, _)| state)
    }

    fn has_entry(&self, index: usize) -> bool {
        self.states.contains_key(&self.names[index])
    }

    fn reserve(&mut self, _count: usize) -> bool {
        true
    }

    fn put(&mut self, index: usize, state: State, reset_after: Micros) {
        self.states.insert(self.names[index].clone(), (state, self.now + reset_after));
    }
}
