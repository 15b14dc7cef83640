//! Charges that are reported later than they were spent, or taken back.

use super::{Params, State};
use crate::domain::{Micros, StepInput};

/// Units to charge, whether they fit or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// All of them.
    pub units: u64,
    /// Those that were held: a limit has admitted them, maybe a higher one, so they cut no units charged before.
    pub held: u64,
}

impl Spent {
    /// Returns units that were all held.
    pub fn held(units: u64) -> Self {
        Self { units, held: units }
    }
}

/// The accuracy of a limit when units of it are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldAccuracy {
    /// The limit would have admitted all requests admitted from holds, one after the other.
    Exact,
    /// No window exceeds the limit's bound, but a request may pass a tick, or a rounding, earlier than without holds.
    WithinBound,
}

/// The way to take back one charge exactly although others were made since, so that the state is as if it had never
/// been made: by a refund within some time, or by other means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoRule {
    /// By a refund, as long as the charges before it have not faded altogether: all charges fade as one.
    WhileItLasts,
    /// By a refund until the end of the period of the charge, with the key's phase if it has one.
    WithinPeriod(Micros),
    /// By a refund until the end of the window of the charge: while the state's first number is the same.
    WithinWindow,
    /// A refund takes the newest charges, but each charge is stored with its mark, so `runs_without` of `runs.lua`
    /// finds it.
    ByMark,
    /// Not possible.
    Never,
}

impl Params {
    /// Charges as many of `units` as still fit. Returns their number, and the next state if it changes. Every
    /// algorithm charges them like a request, including those that shape or charge refused requests.
    pub fn charge_what_fits(
        &self,
        state: Option<&State>,
        units: u64,
        now: Micros,
        phase: Micros,
    ) -> (u64, Option<State>) {
        let input = |cost| StepInput { now, cost, max_wait: None, phase };
        let fits = units.min(self.step(state, &input(0)).0.remaining);
        if fits == 0 { (0, None) } else { (fits, self.step(state, &input(fits as i64)).1) }
    }

    /// Returns the units that a state still holds: how many fewer pass now than for a full key.
    pub fn spent(&self, state: Option<&State>, now: Micros, phase: Micros) -> u64 {
        let remaining = |state| self.step(state, &StepInput { now, cost: 0, max_wait: None, phase }).0.remaining;
        remaining(None).saturating_sub(remaining(state))
    }
}
