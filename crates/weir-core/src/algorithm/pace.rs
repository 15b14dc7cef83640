//! How much a limit admits in any stretch of time, which tells whether another can refuse anything beside it.

use super::Params;
use crate::domain::Micros;

/// What a limit admits at most, with requests of any cost, refunds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// `burst` units at once, and `count` for each `period` that goes by.
    Metered {
        /// Units at once.
        burst: u64,
        /// Units for each period.
        count: u64,
        /// The period.
        period: Micros,
    },
    /// `count` units in any stretch that is shorter than `period`.
    Sliding {
        /// Units in a period.
        count: u64,
        /// The period.
        period: Micros,
    },
    /// `count` units in each of the periods that follow each other.
    Windowed {
        /// Units in a period.
        count: u64,
        /// The period.
        period: Micros,
        /// Periods begin at multiples since the epoch, for every key.
        is_on_clock: bool,
    },
}

impl Params {
    /// Whether it never refuses a request that `other` admits, where `other` is charged for all that it is charged for, and
    /// nothing is charged that either refuses. Refunds apart.
    pub fn is_idle_beside(&self, other: &Self) -> bool {
        let paces = other.pace().zip(self.pace());
        self.admits_its_pace() && paces.is_some_and(|(other, pace)| other.is_within(pace))
    }
}

impl Pace {
    /// Whether all that this pace admits, at any times, is within `other`.
    pub(crate) fn is_within(self, other: Self) -> bool {
        use Pace::{Metered, Sliding, Windowed};
        match (self, other) {
            (_, Metered { burst, count, period }) => {
                let (own_burst, own_count, own_period) = match self {
                    Metered { burst, count, period } => (burst, count, period),
                    Sliding { count, period } => (count, count, period),
                    // The end of one window and the beginning of the next.
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

    /// Most units in any stretch that is shorter than `time`, by at least a microsecond.
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
