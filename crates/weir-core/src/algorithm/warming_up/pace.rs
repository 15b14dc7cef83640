//! What is remembered of a key that warms up.

use super::curve::Curve;
use crate::{
    algorithm::{
        EncodedState,
        params::MAX_COUNT,
        state::{MAX_WHOLE, real, whole},
    },
    domain::Micros,
};

/// When the next request may start, and how much of the store is missing by then. Missing rather than stored, so that a
/// limit whose store is made larger or smaller forgets nothing and gives nothing away.
///
/// What is here is computed in doubles, in the same order as in `warming_up.lua`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Whole microseconds.
    whole: Micros,
    /// What lies above them, 0 to below 1.
    part: f64,
    /// Units missing from the store.
    spent: f64,
}

/// A start that is this part of a microsecond away has come: it is nothing but what rounding leaves.
const TOLERANCE: f64 = 1e-6;

impl Pace {
    /// A key that was never seen: cold, and free to start.
    pub(crate) fn new(now: Micros) -> Self {
        Self { whole: now, part: 0.0, spent: 0.0 }
    }

    /// The moment from which on this state is as if never seen. Its answers are those of none from then on, whatever
    /// rounding makes of the last bit.
    pub(crate) fn forgotten(&self, curve: &Curve) -> Micros {
        let spent = if self.spent < curve.max { self.spent } else { curve.max };
        self.whole + (self.part + spent * curve.cool).ceil() as Micros
    }

    /// The first microsecond at which a request may start.
    pub(crate) fn starts(&self) -> Micros {
        self.whole + Micros::from(self.part > TOLERANCE)
    }

    /// About when an idle key has stored a unit and its next request may start.
    pub(crate) fn stores_one(&self, curve: &Curve) -> Micros {
        let spent = if self.spent < curve.max { self.spent } else { curve.max };
        self.whole + (self.part + positive(spent - (curve.max - 1.0)) * curve.cool).ceil() as Micros
    }

    /// Whole units in the store.
    pub(crate) fn stored(&self, curve: &Curve) -> u64 {
        (curve.max - self.spent).floor() as u64
    }

    /// Brought up to `now`, which is not past [`Pace::forgotten`].
    pub(crate) fn at(&self, now: Micros, curve: &Curve) -> Self {
        let spent = if self.spent < curve.max { self.spent } else { curve.max };
        if now <= self.whole {
            return Self { spent, ..*self };
        }
        let idle = (now - self.whole) as f64 - self.part;
        Self { whole: now, part: 0.0, spent: positive(spent - idle / curve.cool) }
    }

    /// After `units` more.
    pub(crate) fn spend(&self, units: u64, curve: &Curve) -> Self {
        let (price, spent) = curve.spend(units as f64, self.spent);
        let floor = price.floor();
        let (mut whole, mut part) = (self.whole + floor as Micros, self.part + (price - floor));
        if part >= 1.0 {
            (whole, part) = (whole + 1, part - 1.0);
        }
        Self { whole, part, spent }
    }

    /// After `units` are taken back, which first pay what is owed, at the stable price, and then fill the store.
    pub(crate) fn give_back(&self, units: u64, now: Micros, curve: &Curve) -> Self {
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
        // A part just below 0 has become 1; and the difference of two large numbers may be a bit less than it is.
        if part >= 1.0 {
            (whole, part) = (whole + 1, 0.0);
        }
        if whole < now {
            (whole, part) = (now, 0.0);
        }
        Self { whole, part, spent: self.spent }
    }
}

/// A number, 0 where it is below: never the 0 below 0, which no state has.
fn positive(number: f64) -> f64 {
    if number > 0.0 { number } else { 0.0 }
}

impl EncodedState for Box<Pace> {
    /// Micros and the part above them of the next start; units missing from the store.
    fn encode(&self) -> Vec<f64> {
        vec![self.whole as f64, self.part, self.spent]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [micros, part, spent] = *numbers else { return None };
        let (whole, part) = (whole(micros, 0, MAX_WHOLE)?, real(part, 0.0, 1.0)?);
        let spent = real(spent, 0.0, MAX_COUNT as f64)?;
        (part < 1.0).then(|| Box::new(Pace { whole, part, spent }))
    }
}
