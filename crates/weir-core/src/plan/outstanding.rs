//! The decision of a level with outstanding units.

use crate::{
    algorithm::{Params, Spent, State},
    domain::{Decision, StepInput},
    hold::Outstanding,
};

/// Decides a level with outstanding units: judged as if they were spent now, but the next state does not include
/// them. They are held by `base`, the limit without the request's factor.
#[cold]
pub(super) fn step_with_outstanding(
    params: &Params,
    base: &Params,
    state: Option<&State>,
    held: Outstanding,
    input: &StepInput,
) -> (Decision, Option<State>) {
    let under = |state: Option<&State>, input: &StepInput| {
        let all = base.charge(state, Spent::held(held.units), input.now, input.phase);
        params.step(all.as_ref().or(state), input)
    };
    let (mut decision, next) = if input.cost < 0 {
        // Outstanding units cannot be refunded.
        let (refunded, next) = params.step(state, input);
        let stands = under(next.as_ref().or(state), &StepInput { cost: 0, ..*input }).0;
        let Decision { remaining, reset_after, next_after, .. } = stands;
        (Decision { remaining, reset_after, next_after, ..refunded }, next)
    } else {
        let (decision, next) = under(state, input);
        let next = match input.cost {
            0 => next.and_then(|_| params.step(state, input).1),
            _ if decision.allowed => {
                let units = input.cost.unsigned_abs();
                next.and_then(|_| params.charge(state, Spent::held(units), input.now, input.phase))
            }
            // A refusal stores a state that is clamped without the outstanding units too: a cost that never passes
            // changes nothing else.
            _ => params.step(state, &StepInput { cost: decision.limit as i64 + 1, ..*input }).1,
        };
        (decision, next)
    };
    // Outstanding units may count as spent as late as at their deadline, on top of the state at that time, if that
    // has not expired. A window may start in between.
    let (late, left) = (held.until.max(input.now), next.as_ref().or(state));
    let peek = StepInput { now: late, cost: 0, ..*input };
    let lifetime = |state: Option<&State>| {
        let all = base.charge(state, Spent::held(held.units), late, input.phase);
        late - input.now + base.step(all.as_ref().or(state), &peek).0.reset_after
    };
    decision.reset_after = decision.reset_after.max(lifetime(left)).max(lifetime(None));
    (decision, next)
}
