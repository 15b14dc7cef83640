#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    fields::fields,
    kinds::{Period, Units},
    meter::{Metered, MeteredFields},
};
use crate::domain::Micros;

fields! {
    pub(crate) struct Fields as proto::Gcra {
        burst: Units<0>,
        count: Units,
        period: Period,
    }
    examples [
        { burst: 9, count: 10, period: 10s },
        { burst: 15, count: 30, period: 60s },
        { burst: 5, count: 10, period: 15s },
        { burst: 0, count: 1, period: 2s },
        { burst: 9, count: 3, period: 1s },
        { burst: 20, count: 7, period: 1m },
        { burst: 1000, count: 3000000, period: 1s },
        { burst: 100, count: 999983, period: 1d },
        { burst: 0, count: 1, period: 31d },
        { burst: 499, count: 20, period: 31d },
        { burst: 399, count: 1, period: 1d },
    ]
}

/// A burst of `burst` + 1 units, then `count` per `period`, evenly.
pub type Gcra = Metered<Fields>;

impl MeteredFields for Fields {
    const BURST: &'static str = "burst";

    fn rate(&self) -> (u64, u64, Micros) {
        (self.burst + 1, self.count, self.period)
    }
}
