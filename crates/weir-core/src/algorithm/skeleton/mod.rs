#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, ParamError, UndoRule, aligned,
    fields::fields,
    kinds::{Period, Units},
};
use crate::domain::{Decision, Micros, StepInput};

fields! {
    pub(crate) struct Fields {
        count: Units,
        period: Period,
    }
    examples [
        { count: 10, period: 10s },
        { count: 3, period: 1s },
        { count: 7, period: 1m },
        { count: 999983, period: 1d },
        { count: 4294967296, period: 31d },
        { count: 1, period: 1us },
        { count: 500, period: 31d },
        { count: 400, period: 30d },
    ]
}

/// `count` units in each window of length `period`.
#[derive(Clone, Debug, PartialEq)]
pub struct Skeleton {
    fields: Fields,
}

/// The window of the last charge.
type Window = aligned::Window<0, { 1 << 32 }>;

impl Algorithm for Skeleton {
    type Fields = Fields;
    type State = Window;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        Ok(Self { fields })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Window>, input: &StepInput) -> (Decision, Option<Window>) {
        let Fields { count, period } = self.fields;
        let window = Window::at(state, input.now, period, 0);
        let left = window.start + period - input.now;
        let decide = |allowed: bool, used: i64, retry_after: Option<Micros>| {
            let (remaining, reset_after) = (count.saturating_sub(used.unsigned_abs()), if used > 0 { left } else { 0 });
            match allowed {
                true => Decision::pass(count, remaining, reset_after),
                false => Decision::refuse(count, remaining, retry_after, reset_after),
            }
        };
        let used = (window.used + input.cost).max(0);
        if input.cost >= 0 && used.unsigned_abs() > count {
            let never = input.cost.unsigned_abs() > count;
            return (decide(false, window.used, (!never).then_some(left)), None);
        }
        let changes = input.cost > 0 || (input.cost < 0 && state.is_some());
        (decide(true, used, None), changes.then_some(Window { used, ..window }))
    }

    fn time_base(&self) -> String {
        self.fields.period.to_string()
    }

    fn window(&self) -> Micros {
        self.fields.period
    }

    fn undo_rule(&self) -> UndoRule {
        UndoRule::WithinPeriod(self.fields.period)
    }
}
