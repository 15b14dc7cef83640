//! What may become of a charge afterwards: told later than it was spent, or taken back.

use super::{Params, State};
use crate::domain::{Ask, Micros};

/// How well a limit is kept when units of it are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// What is admitted from holds, the limit would have admitted one request after the other.
    Exactly,
    /// No window has more than the limit's bound, but a request may pass a tick, or a rounding, earlier than it would have.
    WithinBound,
}

/// How what was charged is taken back so that a state is as if that had never been charged, others having charged since:
/// by a refund, for so long, or else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesBack {
    /// As long as what was charged before it has not faded altogether: all charges fade as one.
    WhileItLasts,
    /// Until the end of the period in which it was charged; the key's own, where it has a phase.
    WithinPeriod(Micros),
    /// Until the end of the window in which it was charged: while the state's first number is the same.
    WithinWindow,
    /// A refund takes the newest charges. But each is remembered by its mark, so `runs_without` of `runs.lua` finds it.
    ByMark,
    /// Not at all.
    Never,
}

impl Params {
    /// Charges as many of `units` as still fit: how many, and the state with them, where that is another one. In every
    /// algorithm the charge of a request, so one that shapes and one that charges refused requests take it too.
    pub fn charge_what_fits(
        &self,
        state: Option<&State>,
        units: u64,
        now: Micros,
        phase: Micros,
    ) -> (u64, Option<State>) {
        let ask = |cost| Ask { now, cost, max_wait: None, phase };
        let fits = units.min(self.step(state, &ask(0)).0.remaining);
        if fits == 0 { (0, None) } else { (fits, self.step(state, &ask(fits as i64)).1) }
    }

    /// The units that a state still holds: how many fewer pass now than of a full key.
    pub fn spent(&self, state: Option<&State>, now: Micros, phase: Micros) -> u64 {
        let remaining = |state| self.step(state, &Ask { now, cost: 0, max_wait: None, phase }).0.remaining;
        remaining(None).saturating_sub(remaining(state))
    }
}
