//! Runs of a simulation, and their verification.

use super::simulation::{Case, Outcome, Simulation};
use crate::{
    algorithm::{HoldAccuracy, Params, State},
    domain::{Micros, StepInput},
    testing::{LimitDefinition, Random, first_violation},
};

/// Panics if more was admitted than the limits allow, by the definitions and by the limits themselves.
pub(super) fn assert_within(case: &Case, definitions: &[LimitDefinition], outcome: &Outcome) {
    let violation = find_violation(case, definitions, outcome);
    assert_eq!(violation, None, "admitted beyond {definitions:?}");
}

/// Returns the first unit that one of the limits would not have admitted: its index and its time.
pub(super) fn find_violation(
    case: &Case,
    definitions: &[LimitDefinition],
    outcome: &Outcome,
) -> Option<(usize, Micros)> {
    let mut from = 0;
    // A reset forgets all units before it.
    for end in outcome.resets.iter().copied().chain([Micros::MAX]) {
        let to = outcome.admitted.partition_point(|at| *at < end);
        let part = &outcome.admitted[from..to];
        let found = definitions.iter().find_map(|definition| first_violation(*definition, part));
        let found = found.or_else(|| case.params.iter().find_map(|params| first_refused(params, part)));
        if let Some(found) = found {
            return Some((from + found, part[found]));
        }
        from = to;
    }
    None
}

/// Like [`first_violation`], by the limit itself, if it is kept exactly.
fn first_refused(params: &Params, admitted: &[Micros]) -> Option<usize> {
    if params.holdable() != Ok(HoldAccuracy::Exact) {
        return None;
    }
    let mut state: Option<State> = None;
    admitted.iter().position(|now| {
        let (decision, next) = params.step(state.as_ref(), &StepInput { now: *now, cost: 1, max_wait: None, phase: 0 });
        state = next.or(state.take());
        !decision.allowed
    })
}

pub(super) fn run(case: &Case, random: &Random) -> Outcome {
    Simulation::new(case, random).run()
}
