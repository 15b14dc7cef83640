#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, EncodedState, HoldAccuracy, ParamError, Spent, checked,
    fields::{FieldSet as _, fields},
    kinds::{Kind as _, Period, Units},
    params::{MAX_COUNT, MAX_DEPTH, MAX_KEPT_FOR_OTHERS},
    state::{moment, whole},
};
use crate::domain::{Decision, Micros, StepInput, time::SECOND};

fields! {
    pub(crate) struct Fields as proto::LeakyBucket {
        size: Units,
        drip_size: Units = 1,
        drip_rate: Period = SECOND,
    }
    examples [
        { size: 10, drip_rate: 1s },
        { size: 3 },
        { size: 10, drip_size: 2 },
        { size: 4096, drip_size: 2, drip_rate: 1ms },
        { size: 1, drip_rate: 1us },
        { size: 5, drip_size: 7, drip_rate: 333333us },
        { size: 4294967296, drip_size: 3, drip_rate: 700ms },
        { size: 4294967296, drip_size: 4294967296, drip_rate: 31d },
        { size: 500, drip_rate: 6h },
        { size: 400, drip_size: 10, drip_rate: 1d },
    ]
}

/// A bucket that holds `size` units, of which `drip_size` leave at each tick; the interval is `drip_rate`.
#[derive(Clone, Debug, PartialEq)]
pub struct LeakyBucket {
    fields: Fields,
    /// Twice `size`, or what drips within [`MAX_DEPTH`] if that is less. Charges beyond what fits fill it no further,
    /// and what another limit left in it is clamped to this, so that a lowered limit refuses no longer than its own
    /// charges could make it.
    fullest: u64,
    /// `fullest` and `drip_rate` of the limit without the request's factor, if that drips more slowly.
    slower: Option<(u64, Micros)>,
    /// The bounds that it was created with, which also apply to a scaled one.
    bounds: Bounds,
}

/// The units of a bucket at its last tick. An empty bucket does not tick: ticks start when units come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    ticked_at: Micros,
    counter: u64,
}

/// Returns these units, or what drips within [`MAX_DEPTH`] if that is less.
fn within_depth(fields: &Fields, units: u64) -> u64 {
    let ticks = (MAX_DEPTH / fields.drip_rate).unsigned_abs();
    ticks.saturating_mul(fields.drip_size).min(units).min(MAX_COUNT)
}

impl LeakyBucket {
    /// Returns the bucket after all ticks until `now`. Before its last tick (the clock stepped back) it is unchanged.
    fn ticked(&self, state: Option<&Bucket>, now: Micros) -> Bucket {
        if let Some(state) = state {
            let counter = state.counter.min(self.fullest);
            let ticks = (now - state.ticked_at).max(0) / self.fields.drip_rate;
            let dripped = ticks.unsigned_abs().saturating_mul(self.fields.drip_size);
            if dripped < counter {
                return Bucket {
                    ticked_at: state.ticked_at + ticks * self.fields.drip_rate,
                    counter: counter - dripped,
                };
            }
        }
        Bucket { ticked_at: now, counter: 0 }
    }

    /// Returns the units after all ticks until `now`, however many another limit has charged.
    fn unclamped(&self, state: Option<&Bucket>, now: Micros) -> u64 {
        let dripped = |at: Micros| {
            ((now - at).max(0) / self.fields.drip_rate).unsigned_abs().saturating_mul(self.fields.drip_size)
        };
        state.map_or(0, |state| state.counter.saturating_sub(dripped(state.ticked_at)))
    }

    /// Returns the time until `units` have left, above 0, of which the bucket must hold at least that many.
    fn until_gone(&self, units: u64, bucket: Bucket, now: Micros) -> Micros {
        units.div_ceil(self.fields.drip_size) as i64 * self.fields.drip_rate - (now - bucket.ticked_at)
    }

    fn reset_after(&self, bucket: Bucket, now: Micros) -> Micros {
        if bucket.counter == 0 { 0 } else { self.until_gone(bucket.counter, bucket, now) }
    }

    fn pass(&self, bucket: Bucket, now: Micros) -> Decision {
        let remaining = self.fields.size.saturating_sub(bucket.counter);
        Decision::pass(self.fields.size, remaining, self.reset_after(bucket, now))
    }
}

impl Algorithm for LeakyBucket {
    type Fields = Fields;
    type State = Bucket;

    fn new(fields: Fields, bounds: &Bounds) -> Result<Self, ParamError> {
        if fields.size.div_ceil(fields.drip_size) > (MAX_DEPTH / fields.drip_rate).unsigned_abs() {
            let reason = "size would take over 2^50 us (35 years) to run out at this drip_size and drip_rate";
            return Err(ParamError::new("size", reason));
        }
        let fullest = within_depth(&fields, 2 * fields.size);
        Ok(Self { fields, fullest, slower: None, bounds: *bounds })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Bucket>, input: &StepInput) -> (Decision, Option<Bucket>) {
        let now = input.now;
        let mut bucket = self.ticked(state, now);
        let units = input.cost.unsigned_abs();
        if input.cost < 0 {
            bucket.counter = bucket.counter.saturating_sub(units);
            return (self.pass(bucket, now), state.map(|_| bucket));
        }
        let over = (bucket.counter + units).saturating_sub(self.fields.size);
        if over > 0 {
            let retry_after = (units <= self.fields.size).then(|| self.until_gone(over, bucket, now));
            let remaining = self.fields.size.saturating_sub(bucket.counter);
            return (Decision::refuse(self.fields.size, remaining, retry_after, self.reset_after(bucket, now)), None);
        }
        bucket.counter += units;
        (self.pass(bucket, now), (units > 0).then_some(bucket))
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        // If more than one unit drips at a tick, a nonempty bucket ticks earlier, and may soon hold less, than one
        // that was empty when the same units came in.
        if self.fields.drip_size == 1 { Ok(HoldAccuracy::Exact) } else { Ok(HoldAccuracy::WithinBound) }
    }

    fn charge(&self, state: Option<&Bucket>, Spent { units, held }: Spent, now: Micros, _: Micros) -> Option<Bucket> {
        let bucket = self.ticked(state, now);
        let counter = bucket.counter.saturating_add(units).min(self.fullest);
        let deepest = within_depth(&self.fields, MAX_COUNT);
        let all = self.unclamped(state, now).saturating_add(held).min(deepest);
        let dripped = self.fullest - counter;
        if held == 0 || all <= counter || !dripped.is_multiple_of(self.fields.drip_size) {
            return Some(Bucket { counter, ..bucket });
        }
        // `all` for a larger limit, which is `counter` for this one: as the bucket was when it was clamped to `fullest`.
        let ticks = (dripped / self.fields.drip_size) as Micros;
        let ticked_at = bucket.ticked_at - ticks * self.fields.drip_rate;
        Some(Bucket { ticked_at, counter: (all + dripped).min(deepest) })
    }

    fn kept_until(&self, state: &Bucket) -> Option<Micros> {
        let drips = |units: u64, drip_rate| (units.div_ceil(self.fields.drip_size) as Micros).saturating_mul(drip_rate);
        // A larger limit may have had a larger `drip_size`: then the units drip much earlier than at this one.
        let clamped = (state.counter > self.fullest)
            .then(|| drips(state.counter, self.fields.drip_rate).min(MAX_KEPT_FOR_OTHERS));
        let slower = self.slower.map(|(fullest, drip_rate)| drips(state.counter.min(fullest), drip_rate));
        clamped.max(slower).map(|drips| state.ticked_at.saturating_add(drips))
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        // A product beyond i64 saturates above every bound; one that rounds to 0 becomes a microsecond.
        let drip_rate = ((self.fields.drip_rate as f64 * factor).ceil() as i64).max(1);
        let size = <Units>::scaled(self.fields.size, factor);
        checked(Fields { size, drip_rate, ..self.fields }, &self.bounds)
    }

    fn reaching(self, other: &Self) -> Self {
        let fullest = self.fullest.max(within_depth(&self.fields, other.fullest));
        let is_slower = other.fields.drip_rate > self.fields.drip_rate;
        Self { fullest, slower: is_slower.then_some((other.fullest, other.fields.drip_rate)), ..self }
    }

    fn time_base(&self) -> String {
        self.fields.drip_rate.to_string()
    }

    fn window(&self) -> Micros {
        self.fields.drip_rate * self.fields.size.div_ceil(self.fields.drip_size) as Micros
    }

    fn lua_params(&self) -> Vec<f64> {
        let deepest = within_depth(&self.fields, MAX_COUNT);
        let (units, drip_rate) = self.slower.unwrap_or_default();
        let reach = [self.fullest, deepest, units, drip_rate.unsigned_abs()].map(|number| number as f64);
        [self.fields.numbers(), reach.to_vec()].concat()
    }
}

impl EncodedState for Bucket {
    fn encode(&self) -> Vec<f64> {
        vec![self.ticked_at as f64, self.counter as f64]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [ticked_at, counter] = *numbers else { return None };
        Some(Self { ticked_at: moment(ticked_at)?, counter: whole(counter, 0, MAX_COUNT as i64)?.unsigned_abs() })
    }
}
