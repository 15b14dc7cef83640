//! What only an algorithm's own folder can say of it.

use crate::{
    algorithm::kinds::{Kind, Length, Real, Units},
    domain::Micros,
};

/// What the properties must be told of an algorithm.
pub struct Spec {
    /// Most units that are granted within any half-open window just longer than `elapsed`, counted from when each request
    /// may start: what the documentation says, for the parameters of an example. `largest` is the largest cost of a single
    /// request.
    pub bound: fn(example: Example, elapsed: Micros, largest: u64) -> u128,
    /// Whether a caller who takes all there is as soon as it is there gets as much as that.
    pub is_reached: bool,
    /// Requests may pass with a wait: a peek always passes, and reports it.
    pub shapes: bool,
    /// More than `remaining` may pass, with a wait or as a debt, and more than `limit` too.
    pub lends: bool,
    /// Numbers of a state, and numbers that are those of none.
    pub states: &'static [(&'static [f64], bool)],
}

/// An example's parameters, as a file would write them.
#[derive(Clone, Copy)]
pub struct Example(pub &'static [(&'static str, &'static str)]);

impl Example {
    /// A whole number.
    pub fn units(self, field: &str) -> u128 {
        self.read::<Units>(field).into()
    }

    /// A length of time, in microseconds.
    pub fn micros(self, field: &str) -> u128 {
        self.read::<Length>(field).unsigned_abs().into()
    }

    /// A number, whole or not.
    pub fn real(self, field: &str) -> f64 {
        self.read::<Real>(field)
    }

    /// The text, where it is given.
    pub fn text(self, field: &str) -> Option<&'static str> {
        self.0.iter().find(|(name, _)| *name == field).map(|(_, text)| *text)
    }

    /// `most` at once and `count` per `period`: L + ceil(W / T) - 1, where W exceeds `elapsed` by as little as one likes.
    pub fn metered(self, most: u128, elapsed: Micros) -> u128 {
        most + u128::from(elapsed.unsigned_abs()) * self.units("count") / self.micros("period")
    }

    fn read<K: Kind>(self, field: &str) -> K::Value {
        K::read(self.text(field).unwrap()).unwrap()
    }
}
