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
#[derive(Clone, Debug, PartialEq)]
pub struct Gcra {
    fields: Fields,
    meter: Meter,
}

impl Algorithm for Gcra {
    type Fields = Fields;
    type State = Tat;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let meter = Meter::checked("burst", fields.burst + 1, fields.count, fields.period)?;
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
        let Fields { burst, count, period } = self.fields;
        Some(RateBound::Metered { burst: burst + 1, count, period })
    }

    fn window(&self) -> Micros {
        self.meter.depth.ceil()
    }

    fn lua_params(&self) -> Vec<f64> {
        self.meter.lua_params()
    }
}
