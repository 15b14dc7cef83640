#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError,
    fields::fields,
    kinds::{Period, Units, Wait},
    meter::{Meter, Tat},
    params::SHAPES,
    span::Span,
};
use crate::domain::{Decision, Micros, StepInput};

fields! {
    pub(crate) struct Fields as proto::LeakyQueue {
        count: Units,
        period: Period,
        burst: Units<0>,
        delay: Units<0> = 0,
        max_wait: Wait = None,
    }
    examples [
        { count: 10, period: 10s, burst: 9 },
        { count: 10, period: 1s, burst: 5 },
        { count: 10, period: 1s, burst: 5, delay: 5 },
        { count: 1, period: 2s, burst: 5, delay: 2 },
        { count: 3, period: 1s, burst: 9, delay: 4, max_wait: 1s },
        { count: 7, period: 1m, burst: 20, max_wait: 0s },
        { count: 3000000, period: 1s, burst: 1000, delay: 1000 },
        { count: 999983, period: 1d, burst: 100, delay: 50, max_wait: 1d },
        { count: 600000, period: 1s, burst: 4294967296, delay: 4294967296 },
        { count: 1, period: 31d, burst: 0 },
        { count: 20, period: 31d, burst: 499, delay: 499 },
        { count: 1, period: 1d, burst: 399, delay: 399 },
    ]
}

/// A queue that lets `count` per `period` through, evenly; `burst` may be queued, and `delay` of them need not wait.
#[derive(Clone, Debug, PartialEq)]
pub struct LeakyQueue {
    fields: Fields,
    /// The meter, whose depth is how far the key may run ahead for clients that give no maximum wait.
    meter: Meter,
    /// The time that the key may run ahead without a wait.
    free: Span,
}

/// Returns the meter for a `max_wait`: it is full for a request that would wait longer.
fn meter_for_wait(meter: Meter, free: Span, max_wait: Micros) -> Meter {
    let depth = meter.rate.add(free, Span::whole(max_wait));
    if depth >= meter.depth {
        return meter;
    }
    Meter { limit: meter.rate.units_within(depth, meter.limit), depth, ..meter }
}

impl Algorithm for LeakyQueue {
    type Fields = Fields;
    type State = Tat;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let Fields { count, period, burst, delay, max_wait } = fields;
        let whole = Meter::checked("burst", burst + 1, count, period)?;
        if delay > burst {
            return Err(ParamError::new("delay", format!("delay must be 0 to the burst of {burst}, not {delay}")));
        }
        let free = whole.rate.span(delay + 1);
        let meter = max_wait.map_or(whole, |max_wait| meter_for_wait(whole, free, max_wait));
        Ok(Self { fields, meter, free })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Tat>, input: &StepInput) -> (Decision, Option<Tat>) {
        let meter = input.max_wait.map_or(self.meter, |max_wait| meter_for_wait(self.meter, self.free, max_wait));
        let (decision, next) = meter.step(state, input);
        let decision = Decision { limit: self.fields.burst + 1, ..decision };
        if input.cost < 0 || (input.cost > 0 && !decision.allowed) {
            return (decision, next);
        }
        let (rate, now) = (meter.rate, Span::whole(input.now));
        let at = next.as_ref().or(state).map_or(now, |tat| meter.reach.read(tat, rate, now).0);
        let wait = rate.sub(rate.sub(at, self.free), now).ceil().max(0);
        (Decision { allowed: true, retry_after: None, wait, ..decision }, next)
    }

    fn kept_until(&self, tat: &Tat) -> Option<Micros> {
        self.meter.reach.kept_until(tat)
    }

    fn sibling_period(&self) -> Option<Micros> {
        Some(self.fields.period)
    }

    fn reaching(self, other: &Self) -> Self {
        Self { meter: self.meter.reaching(&other.meter), ..self }
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        Err(SHAPES)
    }

    fn window(&self) -> Micros {
        self.meter.rate.span(self.fields.burst + 1).ceil().max(1)
    }

    /// The meter's numbers, for clients that give no maximum wait, then the most units and the part that need not
    /// wait, in micros and parts.
    fn lua_params(&self) -> Vec<f64> {
        let own = [self.fields.burst as i64 + 1, self.free.micros, self.free.num].map(|number| number as f64);
        [self.meter.lua_params(), own.to_vec()].concat()
    }
}
