#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError, RateBound, Spent,
    fields::fields,
    kinds::{Period, Units},
    meter::{Meter, Tat},
};
use crate::domain::{Decision, Micros, StepInput};

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
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    fields: Fields,
    meter: Meter,
}

impl Algorithm for TokenBucket {
    type Fields = Fields;
    type State = Tat;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let meter = Meter::checked("capacity", fields.capacity, fields.count, fields.period)?;
        Ok(Self { fields, meter })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Tat>, input: &StepInput) -> (Decision, Option<Tat>) {
        self.meter.step(state, input)
    }

    fn reaching(self, other: &Self) -> Self {
        Self { meter: self.meter.reaching(&other.meter), ..self }
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        Ok(HoldAccuracy::Exact)
    }

    fn charge(&self, state: Option<&Tat>, spent: Spent, now: Micros, _: Micros) -> Option<Tat> {
        Some(self.meter.charge(state, spent, now))
    }

    fn kept_until(&self, tat: &Tat) -> Option<Micros> {
        self.meter.reach.kept_until(tat)
    }

    fn sibling_period(&self) -> Option<Micros> {
        Some(self.fields.period)
    }

    fn rate_bound(&self) -> Option<RateBound> {
        let Fields { capacity, count, period } = self.fields;
        Some(RateBound::Metered { burst: capacity, count, period })
    }

    fn window(&self) -> Micros {
        self.meter.depth.ceil()
    }

    fn lua_params(&self) -> Vec<f64> {
        self.meter.lua_params()
    }
}
