//! Helpers by which an algorithm's folder tests its documented behavior.

use super::lua::Halves;
pub(crate) use crate::testing::parse;
use crate::{
    algorithm::{Bounds, ParamError, Params, State, find},
    domain::{Decision, Micros, StepInput},
};

/// A millisecond.
pub(crate) const MS: Micros = 1_000;
/// A second.
pub(crate) const S: Micros = 1_000 * MS;

/// One request: its time, its cost, and the decision.
pub(crate) type Line = (Micros, i64, Decision);

/// A key that is decided in both languages.
pub struct Key {
    pub halves: Halves,
    pub state: Option<State>,
    /// The `max_wait` of its requests.
    pub max_wait: Option<Micros>,
}

impl Key {
    pub(crate) fn new() -> Self {
        Self { halves: Halves::new(), state: None, max_wait: None }
    }

    /// Returns the decision, without the time until a unit is left, which `next_after_is_exact` tests.
    pub(crate) fn decide(&mut self, params: &Params, now: Micros, cost: i64) -> Decision {
        let input = StepInput { now, cost, max_wait: self.max_wait, phase: 0 };
        let (decision, next) = params.step(self.state.as_ref(), &input);
        self.halves.assert_same(params, self.state.as_ref(), &input, (&decision, next.as_ref()));
        self.state = next.or(self.state.take());
        Decision { next_after: None, ..decision }
    }
}

/// Returns the error of invalid parameters, with the default bounds.
pub(crate) fn error(name: &str, fields: &[(&str, &str)]) -> ParamError {
    (find(name).unwrap().parse)(fields, &Bounds::default()).unwrap_err()
}

/// Decides the lines for one key, at the epoch and at a present-day time, for clients that accept this wait.
pub(crate) fn check_waiting(name: &str, fields: &'static [(&str, &str)], max_wait: Option<Micros>, lines: &[Line]) {
    let params = parse(name, fields);
    for start in [0, 1_790_000_040 * S] {
        let mut key = Key { max_wait, ..Key::new() };
        for (number, (at, cost, expected)) in lines.iter().enumerate() {
            assert_eq!(key.decide(&params, start + at, *cost), *expected, "{name} {fields:?}, line {number}");
        }
    }
}

/// Like [`check_waiting`], for clients that give no maximum wait.
pub(crate) fn check(name: &str, fields: &'static [(&str, &str)], lines: &[Line]) {
    check_waiting(name, fields, None, lines);
}

pub(crate) const fn pass(limit: u64, remaining: u64, reset_after: Micros) -> Decision {
    let (retry_after, next_after) = (None, None);
    Decision { allowed: true, limit, remaining, retry_after, next_after, reset_after, wait: 0, never: false }
}

pub(crate) const fn wait(limit: u64, remaining: u64, wait: Micros, reset_after: Micros) -> Decision {
    Decision { wait, ..pass(limit, remaining, reset_after) }
}

pub(crate) const fn refuse(limit: u64, remaining: u64, retry: Micros, reset_after: Micros) -> Decision {
    Decision { allowed: false, retry_after: Some(retry), ..pass(limit, remaining, reset_after) }
}

pub(crate) const fn never(limit: u64, remaining: u64, reset_after: Micros) -> Decision {
    Decision { allowed: false, never: true, ..pass(limit, remaining, reset_after) }
}
