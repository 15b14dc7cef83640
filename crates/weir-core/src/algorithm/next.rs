//! When a unit is left, where none is.

use super::Algorithm;
use crate::domain::{Ask, Decision, Micros};

/// When one unit passes that is refused now, in this state after a decision.
pub(crate) fn when_one_passes<A: Algorithm>(
    limit: &A,
    state: Option<&A::State>,
    ask: &Ask,
    decided: &Decision,
) -> Option<Micros> {
    if ask.cost == 1 && !decided.allowed {
        return decided.retry_after;
    }
    let one = Ask { cost: 1, ..*ask };
    // A refusal that is charged would come first.
    let sparing = limit.sparing_denied();
    sparing.as_ref().unwrap_or(limit).step(state, &one).0.retry_after
}
