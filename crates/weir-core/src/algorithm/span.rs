//! Exact time for rates whose interval is not a whole number of microseconds.
//!
//! `count` units per `period` take `T = period / count` each. Neither a truncated `T` nor a fractional double is
//! exact: one admits 1,000,000 a second instead of 600,000, the other drifts. So `T` is kept as `whole + part / den`
//! µs and a moment as `micros + num / den`, all of them integers. `span.lua` computes the same numbers in doubles.

use crate::domain::Micros;

/// The time that one unit takes: `whole + part / den` µs, with `0 <= part < den`, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub(super) whole: i64,
    pub(super) part: i64,
    pub(super) den: i64,
}

/// An exact moment or duration: `micros + num / den` µs, with `0 <= num < den`. It has the
/// denominator of the rate that it is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// Whole microseconds, rounded down.
    pub(crate) micros: Micros,
    /// The fraction above them, in units of 1 / the denominator.
    pub(crate) num: i64,
}

impl Span {
    /// Creates a span of whole microseconds.
    pub(crate) const fn whole(micros: Micros) -> Self {
        Self { micros, num: 0 }
    }

    /// Returns the span rounded up to the microsecond.
    pub(crate) const fn ceil(self) -> Micros {
        self.micros + (self.num > 0) as i64
    }
}

impl Rate {
    /// Creates a rate of `count` units per `period`; both above 0, the count at most 2^32.
    pub fn new(count: u64, period: Micros) -> Self {
        let shared = gcd(count, period.unsigned_abs()).max(1) as i64;
        let (den, micros) = (count as i64 / shared, period / shared);
        Self { whole: micros / den, part: micros % den, den }
    }

    /// Returns the denominator of every [`Span`] used with this rate.
    pub(crate) const fn den(self) -> i64 {
        self.den
    }

    /// Returns the time that `units` take. Saturates far above any moment, where a difference can no longer matter.
    pub(crate) fn span(self, units: u64) -> Span {
        const FAR: i64 = 1 << 60;
        let whole = (units as i64).checked_mul(self.whole).filter(|micros| *micros < FAR).unwrap_or(FAR);
        if self.part == 0 {
            return Span::whole(whole);
        }
        let (part, den) = (self.part as u64, self.den as u64);
        let (carry, num) = match units.checked_mul(part) {
            Some(parts) => (parts / den, parts % den),
            None => {
                let (parts, den) = (u128::from(units) * u128::from(part), u128::from(den));
                ((parts / den) as u64, (parts % den) as u64)
            }
        };
        Span { micros: whole + carry as i64, num: num as i64 }
    }

    pub(crate) fn add(self, a: Span, b: Span) -> Span {
        let num = a.num + b.num;
        let carry = i64::from(num >= self.den);
        Span { micros: a.micros + b.micros + carry, num: num - carry * self.den }
    }

    pub(crate) fn sub(self, a: Span, b: Span) -> Span {
        let num = a.num - b.num;
        let borrow = i64::from(num < 0);
        Span { micros: a.micros - b.micros - borrow, num: num + borrow * self.den }
    }

    /// Returns the most units that fit into the time `headroom`, at most `max`; 0 if `headroom` is
    /// negative.
    ///
    /// A floating-point guess, exact to one unit below 2^52, then corrected by [`Rate::span`].
    pub(crate) fn units_within(self, headroom: Span, max: u64) -> u64 {
        if headroom.micros < 0 {
            return 0;
        }
        if self.part == 0 {
            return ((headroom.micros / self.whole) as u64).min(max);
        }
        let den = self.den as f64;
        let guess = (headroom.micros as f64 * den + headroom.num as f64) / (self.whole as f64 * den + self.part as f64);
        let mut units = (guess as u64).min(max);
        while units > 0 && self.span(units) > headroom {
            units -= 1;
        }
        while units < max && self.span(units + 1) <= headroom {
            units += 1;
        }
        units
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::time::{DAY, SECOND};

    proptest! {
        #[test]
        fn spans_are_exact(count in 1u64..1 << 32, period in 1..31 * DAY, units in 0u64..1 << 20) {
            let rate = Rate::new(count, period);
            let span = rate.span(units);
            // units * period / count, in parts of den: compared by cross-multiplication.
            let exact = i128::from(units) * i128::from(period) * i128::from(rate.den);
            let ours = (i128::from(span.micros) * i128::from(rate.den) + i128::from(span.num)) * i128::from(count);
            prop_assert_eq!(exact, ours);
            prop_assert_eq!(rate.sub(rate.add(span, span), span), span);
        }

        #[test]
        fn units_within_is_the_largest_that_fits(count in 1u64..10_000_000, period in 1..DAY, headroom in 0..1i64 << 40) {
            let rate = Rate::new(count, period);
            let max = 1 << 32;
            let units = rate.units_within(Span::whole(headroom), max);
            prop_assert!(rate.span(units) <= Span::whole(headroom));
            prop_assert!(units == max || rate.span(units + 1) > Span::whole(headroom));
        }
    }

    #[test]
    fn three_per_second_add_up_to_a_whole_second() {
        let rate = Rate::new(3, SECOND);
        assert_eq!(rate.span(3), Span::whole(SECOND));
        assert_eq!(rate.span(1), Span { micros: 333_333, num: 1 });
        assert_eq!(rate.span(1).ceil(), 333_334);
    }
}
