//! The most units that a limit admits in any span of time, which determines whether another limit
//! that applies to the same requests can ever refuse.

use super::Params;
use crate::domain::{Micros, StepInput};

/// The most that a limit admits, with requests of any cost and without refunds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateBound {
    /// A burst of `burst` units, and `count` per `period`.
    Metered {
        /// Units in a burst.
        burst: u64,
        /// Units per period.
        count: u64,
        /// The period.
        period: Micros,
    },
    /// `count` units in any span that is shorter than `period`.
    Sliding {
        /// Units in a period.
        count: u64,
        /// The period.
        period: Micros,
    },
    /// `count` units in each of consecutive periods.
    Windowed {
        /// Units in a period.
        count: u64,
        /// The period.
        period: Micros,
        /// Whether periods start at multiples since the epoch, for every key.
        is_on_clock: bool,
    },
}

impl Params {
    /// Whether it never refuses a request that `other` admits, provided that `other` is charged for everything that
    /// it is charged for, and that nothing is charged that either refuses. Refunds are ignored.
    pub fn is_implied_by(&self, other: &Self) -> bool {
        let bounds = other.rate_bound().zip(self.rate_bound());
        self.reaches_rate_bound() && bounds.is_some_and(|(other, own)| other.is_within(own))
    }

    /// Returns the units that an unused key may spend in a burst.
    pub fn at_once(&self) -> u64 {
        self.step(None, &StepInput { now: 0, cost: 0, max_wait: None, phase: 0 }).0.limit
    }

    /// Returns the rate that it admits in the long run: units, and the period that they are per.
    pub fn long_run(&self) -> (u64, Micros) {
        use RateBound::{Metered, Sliding, Windowed};
        match self.rate_bound() {
            Some(Metered { count, period, .. } | Sliding { count, period } | Windowed { count, period, .. }) => {
                (count, period)
            }
            None => (self.at_once(), self.window()),
        }
    }
}

impl RateBound {
    /// Whether everything that this bound admits, at any times, is within `other`.
    pub(crate) fn is_within(self, other: Self) -> bool {
        use RateBound::{Metered, Sliding, Windowed};
        match (self, other) {
            (_, Metered { burst, count, period }) => {
                let (own_burst, own_count, own_period) = match self {
                    Metered { burst, count, period } => (burst, count, period),
                    Sliding { count, period } => (count, count, period),
                    // The end of one window and the start of the next.
                    Windowed { count, period, .. } => (2 * count, count, period),
                };
                own_burst <= burst && product(own_count, period) <= product(count, own_period)
            }
            (
                Windowed { count: own, period: own_period, is_on_clock: true },
                Windowed { count, period, is_on_clock: true },
            ) if period % own_period == 0 => product(own, period / own_period) <= count.into(),
            (
                Windowed { count: own, period: own_period, is_on_clock: true },
                Windowed { count, period, is_on_clock: true },
            ) if own_period % period == 0 => own <= count,
            (_, Sliding { count, period } | Windowed { count, period, .. }) => {
                self.within_less_than(period) <= count.into()
            }
        }
    }

    /// Returns the most units in any span that is shorter than `time` by at least a microsecond.
    fn within_less_than(self, time: Micros) -> u128 {
        let last = (time - 1).max(0);
        match self {
            Self::Metered { burst, count, period } => {
                u128::from(burst) + product(count, last) / u128::from(period.unsigned_abs())
            }
            Self::Sliding { count, period } => product(count, last / period + 1),
            Self::Windowed { count, period, .. } => {
                let ends = last / period + Micros::from(last % period > 0);
                product(count, ends + 1)
            }
        }
    }
}

fn product(units: u64, time: Micros) -> u128 {
    u128::from(units) * u128::from(time.unsigned_abs())
}
