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
    pub(crate) struct Fields as proto::TokenBucket {
        capacity: Units,
        count: Units,
        period: Period,
    }
    examples [
        { capacity: 10, count: 10, period: 10s },
        { capacity: 3, count: 1, period: 2s },
        { capacity: 100, count: 7, period: 1s },
        { capacity: 1, count: 999983, period: 1d },
        { capacity: 4294967296, count: 600000, period: 1s },
        { capacity: 500, count: 20, period: 31d },
        { capacity: 400, count: 1, period: 1d },
    ]
}

/// A burst of `capacity` units, refilled with `count` per `period`.
pub type TokenBucket = Metered<Fields>;

impl MeteredFields for Fields {
    const BURST: &'static str = "capacity";

    fn rate(&self) -> (u64, u64, Micros) {
        (self.capacity, self.count, self.period)
    }
}
