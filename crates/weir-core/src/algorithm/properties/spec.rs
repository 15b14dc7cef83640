//! The spec that each algorithm's folder provides.

use crate::{
    algorithm::kinds::{Kind, Length, Real, Units},
    domain::Micros,
};

/// The spec of an algorithm, for the properties.
pub(crate) struct Spec {
    /// Most units that are granted within any half-open window just longer than `elapsed`, counted from when each request
    /// may start: what the documentation says, for the parameters of an example. `largest` is the largest cost of a single
    /// request.
    pub(crate) bound: fn(example: Example, elapsed: Micros, largest: u64) -> u128,
    /// Whether a caller who takes all there is as soon as it is there gets as much as that.
    pub(crate) is_reached: bool,
    /// Requests may pass with a wait: a peek always passes, and reports it.
    pub(crate) shapes: bool,
    /// More than `remaining` may pass, with a wait or as a debt, and more than `limit` too.
    pub(crate) lends: bool,
    /// Numbers of a state, and numbers that are those of none.
    pub(crate) states: &'static [(&'static [f64], bool)],
}

/// An example's parameters, as a file would write them.
#[derive(Clone, Copy)]
pub(crate) struct Example(pub &'static [(&'static str, &'static str)]);

impl Example {
    /// A whole number.
    pub(crate) fn units(self, field: &str) -> u128 {
        self.read::<Units>(field).into()
    }

    /// A length of time, in microseconds.
    pub(crate) fn micros(self, field: &str) -> u128 {
        self.read::<Length>(field).unsigned_abs().into()
    }

    /// A number, whole or not.
    pub(crate) fn real(self, field: &str) -> f64 {
        self.read::<Real>(field)
    }

    /// The text, where it is given.
    pub(crate) fn text(self, field: &str) -> Option<&'static str> {
        self.0.iter().find(|(name, _)| *name == field).map(|(_, text)| *text)
    }

    /// `most` at once and `count` per `period`: L + ceil(W / T) - 1, where W exceeds `elapsed` by as little as one likes.
    pub(crate) fn metered(self, most: u128, elapsed: Micros) -> u128 {
        most + u128::from(elapsed.unsigned_abs()) * self.units("count") / self.micros("period")
    }

    fn read<K: Kind>(self, field: &str) -> K::Value {
        K::read(self.text(field).unwrap()).unwrap()
    }
}
