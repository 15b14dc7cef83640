//! What only an algorithm's own folder can say, and the tools by which its folder tests what is printed about it.

use super::lua::Halves;
use crate::{
    algorithm::{
        Bounds, Params, State, find,
        params::{duration, number},
    },
    domain::{Ask, Decision, Micros},
};

/// What the laws must be told of an algorithm.
pub struct Facts {
    /// Most units that are granted within any half-open window just longer than `elapsed`, counted from when each request
    /// may start: what the documentation says, for the parameters of an example. `largest` is the largest cost of a single
    /// request.
    pub bound: fn(fields: Fields, elapsed: Micros, largest: u64) -> u128,
    /// Whether a caller who takes all there is as soon as it is there gets as much as that.
    pub is_reached: bool,
    /// Requests may pass with a wait: a peek always passes, and reports it.
    pub shapes: bool,
    /// More than `remaining` may pass, with a wait or as a debt, and more than `limit` too.
    pub lends: bool,
    /// Words of a state, and words that are those of none.
    pub words: &'static [(&'static [f64], bool)],
}

/// An example's parameters, as a file would write them.
#[derive(Clone, Copy)]
pub struct Fields(pub &'static [(&'static str, &'static str)]);

impl Fields {
    /// A whole number.
    pub fn units(self, field: &str) -> u128 {
        number(&self.0, field).unwrap().into()
    }

    /// A length of time, in microseconds.
    pub fn micros(self, field: &str) -> u128 {
        duration(&self.0, field).unwrap().unsigned_abs().into()
    }

    /// The text, where it is given.
    pub fn text(self, field: &str) -> Option<&'static str> {
        self.0.iter().find(|(name, _)| *name == field).map(|(_, text)| *text)
    }

    /// `most` at once and `count` per `period`: L + ceil(W / T) - 1, where W exceeds `elapsed` by as little as one likes.
    pub fn metered(self, most: u128, elapsed: Micros) -> u128 {
        most + u128::from(elapsed.unsigned_abs()) * self.units("count") / self.micros("period")
    }
}

/// A millisecond.
pub const MS: Micros = 1_000;
/// A second.
pub const S: Micros = 1_000 * MS;

/// One request: its moment, its cost, and the answer.
pub type Line = (Micros, i64, Decision);

/// A key that is asked in both languages.
pub struct Key {
    pub halves: Halves,
    pub state: Option<State>,
    /// What its callers accept.
    pub max_wait: Option<Micros>,
}

impl Key {
    pub fn new() -> Self {
        Self { halves: Halves::new(), state: None, max_wait: None }
    }

    pub fn ask(&mut self, params: &Params, now: Micros, cost: i64) -> Decision {
        let ask = Ask { now, cost, max_wait: self.max_wait, phase: 0 };
        let (decision, next) = params.step(self.state.as_ref(), &ask);
        self.halves.assert_same(params, self.state.as_ref(), &ask, (&decision, next.as_ref()));
        self.state = next.or(self.state.take());
        decision
    }
}

/// Parameters as a file would write them; the bounds are the widest.
pub fn parse(name: &str, fields: &'static [(&str, &str)]) -> Params {
    let bounds = Bounds { max_period: crate::algorithm::params::MAX_PERIOD };
    (find(name).unwrap().parse)(&fields, &bounds).unwrap()
}

/// Asks the lines of one key, at the epoch and in our days, of callers who accept so long a wait.
pub fn check_waiting(name: &str, fields: &'static [(&str, &str)], max_wait: Option<Micros>, lines: &[Line]) {
    let params = parse(name, fields);
    for start in [0, 1_790_000_040 * S] {
        let mut key = Key { max_wait, ..Key::new() };
        for (number, (at, cost, expected)) in lines.iter().enumerate() {
            assert_eq!(key.ask(&params, start + at, *cost), *expected, "{name} {fields:?}, line {number}");
        }
    }
}

/// The same of callers who do not say.
pub fn check(name: &str, fields: &'static [(&str, &str)], lines: &[Line]) {
    check_waiting(name, fields, None, lines);
}

pub const fn pass(limit: u64, remaining: u64, reset_after: Micros) -> Decision {
    Decision { allowed: true, limit, remaining, retry_after: None, reset_after, wait: 0, never: false }
}

pub const fn wait(limit: u64, remaining: u64, wait: Micros, reset_after: Micros) -> Decision {
    Decision { wait, ..pass(limit, remaining, reset_after) }
}

pub const fn refuse(limit: u64, remaining: u64, retry: Micros, reset_after: Micros) -> Decision {
    Decision { allowed: false, limit, remaining, retry_after: Some(retry), reset_after, wait: 0, never: false }
}

pub const fn never(limit: u64, remaining: u64, reset_after: Micros) -> Decision {
    Decision { allowed: false, limit, remaining, retry_after: None, reset_after, wait: 0, never: true }
}
