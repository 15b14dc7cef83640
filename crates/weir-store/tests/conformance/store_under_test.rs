//! The interface of stores under test.

use std::{collections::BTreeMap, sync::Arc};

use weir_core::{
    algorithm::State,
    domain::{Key, ManualClock, Micros, key::END},
    hold::{Ledger, Ledgers, Outstanding, Record, Reservations},
    plan::{Decisions, Plan, States, decide},
};
use weir_store::{MemoryStore, ResetDone};

use super::holds::in_memory;

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

/// The reference: the authority in Rust, on maps of states, ledgers and records by name.
#[derive(Clone, Default)]
pub struct Reference {
    states: BTreeMap<Vec<u8>, (State, Micros)>,
    ledgers: BTreeMap<Vec<u8>, Ledger>,
    records: BTreeMap<Vec<u8>, Record>,
}

/// The states and ledgers of one plan's levels.
pub struct View<'a> {
    all: &'a mut Reference,
    names: Vec<Vec<u8>>,
    now: Micros,
}

impl Reference {
    pub fn view(&mut self, plan: &Plan<'_>, now: Micros) -> View<'_> {
        let names = plan.levels().iter().map(|level| [level.path(), level.limit.ident()].concat()).collect();
        View { all: self, names, now }
    }
}

impl StoreUnderTest for Reference {
    fn name(&self) -> &'static str {
        "the step over a map"
    }

    async fn forget(&mut self) {
        *self = Self::default();
    }

    async fn decide(&mut self, plan: &Plan<'_>, now: Micros) -> Decisions {
        decide(plan, &mut self.view(plan, now), now)
    }

    async fn reset(&mut self, key: &Key, _anchor: u8, subtree: bool, now: Micros) -> ResetDone {
        let path = key.prefix(key.depth());
        let is_own = |name: &[u8]| matches!(name.strip_prefix(path), Some([END, ..]));
        let is_reset = |name: &[u8]| is_own(name) || subtree && name.starts_with(path);
        let mut done = ResetDone::default();
        self.states.retain(|name, (_, expires)| {
            let is_reset = is_reset(name);
            done.existed |= is_own(name) && *expires > now;
            done.removed |= is_reset && *expires > now;
            !is_reset
        });
        for (_, ledger) in self.ledgers.iter_mut().filter(|(name, _)| is_reset(name)) {
            ledger.forget_expired(now);
        }
        done
    }

    async fn states(&mut self, now: Micros) -> Option<Memories> {
        let live = self.states.iter().filter(|(_, (_, expires))| *expires > now);
        let memory = |state: &State, expires: &Micros| Memory { expires: *expires, words: state.encode() };
        Some(live.map(|(name, (state, expires))| (name.clone(), memory(state, expires))).collect())
    }
}

impl StoreUnderTest for MemoryStore<Arc<ManualClock>> {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn forget(&mut self) {
        *self = in_memory(&self.clock());
    }

    async fn decide(&mut self, plan: &Plan<'_>, now: Micros) -> Decisions {
        self.clock().set(now);
        self.verdict(plan).decisions
    }

    async fn reset(&mut self, key: &Key, anchor: u8, subtree: bool, now: Micros) -> ResetDone {
        self.clock().set(now);
        let done = self.reset_now(key, anchor, subtree);
        assert!(!done.scanned);
        done
    }

    async fn states(&mut self, _now: Micros) -> Option<Memories> {
        None
    }
}

impl States for View<'_> {
    fn get(&self, index: usize) -> Option<&State> {
        self.all.states.get(&self.names[index]).filter(|(_, expires)| *expires > self.now).map(|(state, _)| state)
    }

    fn outstanding(&self, index: usize) -> Outstanding {
        self.all.ledgers.get(&self.names[index]).map(Ledger::outstanding).unwrap_or_default()
    }

    fn has_entry(&self, index: usize) -> bool {
        self.all.states.contains_key(&self.names[index])
    }

    fn reserve(&mut self, _: usize) -> bool {
        true
    }

    fn put(&mut self, index: usize, state: State, reset_after: Micros) {
        self.all.states.insert(self.names[index].clone(), (state, self.now + reset_after));
    }
}

impl Ledgers for View<'_> {
    fn take_ledger(&mut self, index: usize) -> Ledger {
        self.all.ledgers.remove(&self.names[index]).unwrap_or_default()
    }

    fn put_ledger(&mut self, index: usize, ledger: Ledger) {
        self.all.ledgers.insert(self.names[index].clone(), ledger);
    }
}

impl Reservations for View<'_> {
    fn record(&self, name: &[u8]) -> Option<Record> {
        self.all.records.get(name).cloned()
    }

    fn reserve_record(&mut self, _: Option<&[usize]>) -> bool {
        true
    }

    fn put_record(&mut self, name: &[u8], record: Record) {
        self.all.records.insert(name.to_vec(), record);
    }
}
