//! The state of a key that warms up.

use super::curve::Curve;
use crate::{
    algorithm::{
        EncodedState,
        params::MAX_COUNT,
        state::{MAX_WHOLE, real, whole},
    },
    domain::Micros,
};

/// The time at which the next request may start, and the units missing from the store by then. Missing rather than
/// stored units, so that a limit whose store is resized neither forgets nor gives away anything.
///
/// Computed in doubles, in the same order as in `warming_up.lua`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmupState {
    /// Whole microseconds.
    whole: Micros,
    /// The fraction above them, from 0 to below 1.
    part: f64,
    /// Units missing from the store.
    spent: f64,
}

/// A start within this fraction of a microsecond has been reached: the difference is only rounding.
const TOLERANCE: f64 = 1e-6;

impl WarmupState {
    /// Creates the state of an unknown key: cold, and free to start.
    pub(crate) fn new(now: Micros) -> Self {
        Self { whole: now, part: 0.0, spent: 0.0 }
    }

    /// Returns the time from which this state is as if never used. From then on it answers as an
    /// unknown key does, however the last bit is rounded.
    pub(crate) fn forgotten(&self, curve: &Curve) -> Micros {
        let spent = if self.spent < curve.max { self.spent } else { curve.max };
        self.whole + (self.part + spent * curve.cool).ceil() as Micros
    }

    /// Returns the first microsecond at which a request may start.
    pub(crate) fn starts(&self) -> Micros {
        self.whole + Micros::from(self.part > TOLERANCE)
    }

    /// Returns approximately when an idle key has stored a unit and its next request may start.
    pub(crate) fn stores_one(&self, curve: &Curve) -> Micros {
        let spent = if self.spent < curve.max { self.spent } else { curve.max };
        self.whole + (self.part + positive(spent - (curve.max - 1.0)) * curve.cool).ceil() as Micros
    }

    /// Returns the whole units in the store.
    pub(crate) fn stored(&self, curve: &Curve) -> u64 {
        (curve.max - self.spent).floor() as u64
    }

    /// Returns the state at `now`, which must not be after [`WarmupState::forgotten`].
    pub(crate) fn at(&self, now: Micros, curve: &Curve) -> Self {
        let spent = if self.spent < curve.max { self.spent } else { curve.max };
        if now <= self.whole {
            return Self { spent, ..*self };
        }
        let idle = (now - self.whole) as f64 - self.part;
        Self { whole: now, part: 0.0, spent: positive(spent - idle / curve.cool) }
    }

    /// Returns the state after `units` are spent.
    pub(crate) fn spend(&self, units: u64, curve: &Curve) -> Self {
        let (price, spent) = curve.spend(units as f64, self.spent);
        let floor = price.floor();
        let (mut whole, mut part) = (self.whole + floor as Micros, self.part + (price - floor));
        if part >= 1.0 {
            (whole, part) = (whole + 1, part - 1.0);
        }
        Self { whole, part, spent }
    }

    /// Returns the state after `units` are refunded. They first pay the debt, at the stable price,
    /// and then fill the store.
    pub(crate) fn refund(&self, units: u64, now: Micros, curve: &Curve) -> Self {
        let owed = (self.whole - now) as f64 + self.part;
        let paid = units as f64 * curve.stable;
        if paid >= owed {
            let rest = positive(units as f64 - owed / curve.stable);
            return Self { whole: now, part: 0.0, spent: positive(self.spent - rest) };
        }
        let floor = paid.floor();
        let (mut whole, mut part) = (self.whole - floor as Micros, self.part - (paid - floor));
        if part < 0.0 {
            (whole, part) = (whole - 1, part + 1.0);
        }
        // A part just below 0 has become 1; and the difference of two large numbers may be slightly less than exact.
        if part >= 1.0 {
            (whole, part) = (whole + 1, 0.0);
        }
        if whole < now {
            (whole, part) = (now, 0.0);
        }
        Self { whole, part, spent: self.spent }
    }
}

/// Returns the number, or 0 if it is negative: never -0, which no state has.
fn positive(number: f64) -> f64 {
    if number > 0.0 { number } else { 0.0 }
}

impl EncodedState for Box<WarmupState> {
    /// Encodes the micros and the fraction of the next start, and the units missing from the store.
    fn encode(&self) -> Vec<f64> {
        vec![self.whole as f64, self.part, self.spent]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [micros, part, spent] = *numbers else { return None };
        let (whole, part) = (whole(micros, 0, MAX_WHOLE)?, real(part, 0.0, 1.0)?);
        let spent = real(spent, 0.0, MAX_COUNT as f64)?;
        (part < 1.0).then(|| Box::new(WarmupState { whole, part, spent }))
    }
}
