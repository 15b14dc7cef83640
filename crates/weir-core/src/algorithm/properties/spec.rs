//! The spec that each algorithm's folder provides.

use crate::{
    algorithm::kinds::{Kind, Length, Real, Units},
    domain::Micros,
};

/// The spec of an algorithm, for the property tests.
pub(crate) struct Spec {
    /// The documented bound on units granted within any half-open window just longer than `elapsed`, counted from
    /// when each request may start, for the parameters of an example. `largest` is the largest cost of a single
    /// request.
    pub(crate) bound: fn(example: Example, elapsed: Micros, largest: u64) -> u128,
    /// Whether a client that takes everything as soon as it is available reaches the bound.
    pub(crate) is_reached: bool,
    /// Whether requests may pass with a wait: a preview always passes, and reports it.
    pub(crate) shapes: bool,
    /// Whether more than `remaining` may pass, with a wait or as a debt, and more than `limit` too.
    pub(crate) lends: bool,
    /// Numbers, each with whether they encode a state.
    pub(crate) states: &'static [(&'static [f64], bool)],
}

/// An example's parameters, as a file would write them.
#[derive(Clone, Copy)]
pub(crate) struct Example(pub &'static [(&'static str, &'static str)]);

impl Example {
    /// Returns an integer parameter.
    pub(crate) fn units(self, field: &str) -> u128 {
        self.read::<Units>(field).into()
    }

    /// Returns a duration, in microseconds.
    pub(crate) fn micros(self, field: &str) -> u128 {
        self.read::<Length>(field).unsigned_abs().into()
    }

    /// Returns a number, whole or not.
    pub(crate) fn real(self, field: &str) -> f64 {
        self.read::<Real>(field)
    }

    /// Returns the text, if it is given.
    pub(crate) fn text(self, field: &str) -> Option<&'static str> {
        self.0.iter().find(|(name, _)| *name == field).map(|(_, text)| *text)
    }

    /// The bound for a burst of `burst` units and `count` per `period`: L + ceil(W / T) - 1, where
    /// W exceeds `elapsed` by an arbitrarily small time.
    pub(crate) fn metered(self, burst: u128, elapsed: Micros) -> u128 {
        burst + u128::from(elapsed.unsigned_abs()) * self.units("count") / self.micros("period")
    }

    fn read<K: Kind>(self, field: &str) -> K::Value {
        K::read(self.text(field).unwrap()).unwrap()
    }
}
