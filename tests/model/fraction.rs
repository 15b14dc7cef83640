//! Exact fractions.

use std::cmp::Ordering;

/// A fraction with a positive denominator, not always in lowest terms: the denominators of the tests stay small.
#[derive(Clone, Copy, Debug)]
pub struct Fraction {
    num: i128,
    den: i128,
}

impl Fraction {
    pub fn new(num: i128, den: i128) -> Self {
        let shared = gcd(num.abs(), den).max(1);
        Self { num: num / shared, den: den / shared }
    }

    pub fn whole(number: i128) -> Self {
        Self { num: number, den: 1 }
    }

    pub fn plus(self, other: Self) -> Self {
        if self.den == other.den {
            return Self { num: self.num + other.num, ..self };
        }
        Self { num: self.num * other.den + other.num * self.den, den: self.den * other.den }
    }

    pub fn minus(self, other: Self) -> Self {
        self.plus(Self { num: -other.num, ..other })
    }

    pub fn times(self, number: i128) -> Self {
        Self { num: self.num * number, ..self }
    }

    pub fn divided_by(self, other: Self) -> Self {
        assert!(other.num > 0);
        Self { num: self.num * other.den, den: self.den * other.num }
    }

    pub fn floor(self) -> i128 {
        self.num.div_euclid(self.den)
    }

    pub fn ceil(self) -> i128 {
        -(-self.num).div_euclid(self.den)
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.num * other.den).cmp(&(other.num * self.den))
    }
}

pub fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
