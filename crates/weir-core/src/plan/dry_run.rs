//! Dry runs: plans that are decided as usual without storing anything.

use smallvec::SmallVec;

use super::{Decisions, Plan, States, decide::charge};
use crate::{algorithm::State, domain::Micros, hold::Outstanding};

/// Decides a plan at `now` without changing the states.
#[cold]
pub(crate) fn dry_run(plan: &Plan<'_>, states: &impl States, now: Micros) -> Decisions {
    let mut decisions = Decisions::new();
    charge(&mut decisions, plan, &mut Scratch { states, put: SmallVec::new() }, now);
    decisions
}

/// An overlay over the states, with those that the plan puts: levels that share a state see what earlier levels would
/// have stored.
struct Scratch<'s, S> {
    states: &'s S,
    put: SmallVec<[(usize, State, Micros); 4]>,
}

impl<S> Scratch<'_, S> {
    fn put_at(&self, index: usize) -> Option<&(usize, State, Micros)> {
        self.put.iter().find(|(state_index, ..)| *state_index == index)
    }
}

impl<S: States> States for Scratch<'_, S> {
    fn get(&self, index: usize) -> Option<&State> {
        match self.put_at(index) {
            Some((_, state, lasts)) => (*lasts > 0).then_some(state),
            None => self.states.get(index),
        }
    }

    fn outstanding(&self, index: usize) -> Outstanding {
        self.states.outstanding(index)
    }

    fn has_entry(&self, index: usize) -> bool {
        self.put_at(index).is_some() || self.states.has_entry(index)
    }

    fn has_capacity(&self, count: usize) -> bool {
        let new = self.put.iter().filter(|(state_index, ..)| !self.states.has_entry(*state_index)).count();
        self.states.has_capacity(new + count)
    }

    fn reserve(&mut self, count: usize) -> bool {
        self.has_capacity(count)
    }

    fn put(&mut self, index: usize, state: State, lasts: Micros) {
        match self.put.iter_mut().find(|(state_index, ..)| *state_index == index) {
            Some(put) => *put = (index, state, lasts),
            None => self.put.push((index, state, lasts)),
        }
    }
}
