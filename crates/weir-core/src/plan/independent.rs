//! The rules under which levels charge independently: `independent` and `over_limit_only`.

use super::{
    Plan,
    step::{Decisions, States, charges_anyway, passes, put_if_it_fits, refuse_as_full, step},
};
use crate::domain::{Decision, Micros};

/// Decides the non-shadow levels first; each charges if it allows. Whether shadow levels are charged depends on the
/// result, so they are decided afterwards: one of them may share its state with an earlier level.
pub(super) fn independent(decisions: &mut Decisions, plan: &Plan<'_>, states: &mut impl States, now: Micros) {
    decisions.extend(plan.levels.iter().map(|_| Decision::pass(0, 0, 0)));
    let mut allowed = true;
    for (index, level) in plan.levels.iter().enumerate().filter(|(_, level)| !level.limit.shadow) {
        let (mut decision, next) = step(plan, states, index, level.cost, now);
        if let Some(state) = next
            && !put_if_it_fits(plan, states, index, state, decision.reset_after, now)
            && decision.allowed
        {
            decision = refuse_as_full(&decision);
        }
        allowed &= decision.allowed;
        decisions[index] = decision;
    }
    for (index, level) in plan.levels.iter().enumerate().filter(|(_, level)| level.limit.shadow) {
        let (mut decision, next) = step(plan, states, index, level.cost, now);
        if allowed || !decision.allowed || charges_anyway(plan, index, level.cost) {
            if let Some(state) = next {
                put_if_it_fits(plan, states, index, state, decision.reset_after, now);
            }
        } else {
            decision = step(plan, states, index, 0, now).0;
        }
        decisions[index] = decision;
    }
}

/// If levels refuse, only they charge, and the others report a preview. Each level is judged by its own cost, so
/// among levels that share a state some may refuse only after the others have charged.
pub(super) fn over_limit_only(decisions: &mut Decisions, plan: &Plan<'_>, states: &mut impl States, now: Micros) {
    let judged = plan.levels.iter().enumerate();
    let judged: Decisions = judged.map(|(index, level)| step(plan, states, index, level.cost, now).0).collect();
    if passes(plan, &judged) {
        return independent(decisions, plan, states, now);
    }
    for (index, (level, judged)) in plan.levels.iter().zip(&judged).enumerate() {
        let (decision, next) = step(plan, states, index, if judged.allowed { 0 } else { level.cost }, now);
        if let Some(state) = next {
            put_if_it_fits(plan, states, index, state, decision.reset_after, now);
        }
        decisions.push(decision);
    }
}
