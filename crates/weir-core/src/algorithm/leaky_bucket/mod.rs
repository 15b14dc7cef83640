#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, MAX_WORD, ParamError, Words,
    params::{MAX_COUNT, MAX_DEPTH, check_count, check_period, scale_count},
    whole,
};
use crate::domain::{
    Ask, Decision, Micros,
    time::{SECOND, format_duration},
};

/// Units that leave at each tick where the parameters do not say.
pub const DEFAULT_DRIP_SIZE: u64 = 1;
/// The length of a tick where the parameters do not say.
pub const DEFAULT_DRIP_RATE: Micros = SECOND;

/// A bucket that holds `size` units, of which `drip_size` leave at each tick of `drip_rate`.
#[derive(Clone, Debug, PartialEq)]
pub struct LeakyBucket {
    size: u64,
    drip_size: u64,
    drip_rate: Micros,
    /// What drips within [`MAX_DEPTH`]. A bucket that holds more, filled while the limit was another, counts as holding
    /// this, so that no duration passes what a double holds.
    fullest: u64,
    /// Where it was made, which is where a factor may take it.
    bounds: Bounds,
}

/// What a bucket held at its last tick. An empty one has no ticks: they begin when something comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    ticked_at: Micros,
    counter: u64,
}

impl LeakyBucket {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a size or drip size outside 1 to 2^32, a drip rate outside 1 µs to the bound, or a bucket that
    /// takes over 2^50 µs to run empty.
    pub fn new(size: u64, drip_size: u64, drip_rate: Micros, bounds: &Bounds) -> Result<Self, ParamError> {
        check_count("size", size)?;
        check_count("drip_size", drip_size)?;
        check_period("drip_rate", drip_rate, bounds)?;
        let most_ticks = (MAX_DEPTH / drip_rate).unsigned_abs();
        if size.div_ceil(drip_size) > most_ticks {
            let reason = "size would take over 2^50 us (35 years) to run out at this drip_size and drip_rate";
            return Err(ParamError::new("size", reason));
        }
        let fullest = most_ticks.saturating_mul(drip_size).min(MAX_COUNT);
        Ok(Self { size, drip_size, drip_rate, fullest, bounds: *bounds })
    }

    /// The bucket after all the ticks until `now`. Before its last tick (the clock stepped back) it is as it was then.
    fn ticked(&self, state: Option<&Bucket>, now: Micros) -> Bucket {
        if let Some(state) = state {
            let counter = state.counter.min(self.fullest);
            let ticks = (now - state.ticked_at).max(0) / self.drip_rate;
            let dripped = ticks.unsigned_abs().saturating_mul(self.drip_size);
            if dripped < counter {
                return Bucket { ticked_at: state.ticked_at + ticks * self.drip_rate, counter: counter - dripped };
            }
        }
        Bucket { ticked_at: now, counter: 0 }
    }

    /// How long until `units` of them have left, of which the bucket holds at least so many; above 0.
    fn until_gone(&self, units: u64, bucket: Bucket, now: Micros) -> Micros {
        units.div_ceil(self.drip_size) as i64 * self.drip_rate - (now - bucket.ticked_at)
    }

    fn reset_after(&self, bucket: Bucket, now: Micros) -> Micros {
        if bucket.counter == 0 { 0 } else { self.until_gone(bucket.counter, bucket, now) }
    }

    fn pass(&self, bucket: Bucket, now: Micros) -> Decision {
        let remaining = self.size.saturating_sub(bucket.counter);
        Decision::pass(self.size, remaining, self.reset_after(bucket, now))
    }
}

impl Algorithm for LeakyBucket {
    type State = Bucket;

    #[inline]
    fn step(&self, state: Option<&Bucket>, ask: &Ask) -> (Decision, Option<Bucket>) {
        let now = ask.now;
        let mut bucket = self.ticked(state, now);
        let units = ask.cost.unsigned_abs();
        if ask.cost < 0 {
            bucket.counter = bucket.counter.saturating_sub(units);
            return (self.pass(bucket, now), state.map(|_| bucket));
        }
        let over = (bucket.counter + units).saturating_sub(self.size);
        if over > 0 {
            let retry_after = (units <= self.size).then(|| self.until_gone(over, bucket, now));
            let remaining = self.size.saturating_sub(bucket.counter);
            return (Decision::refuse(self.size, remaining, retry_after, self.reset_after(bucket, now)), None);
        }
        bucket.counter += units;
        (self.pass(bucket, now), (units > 0).then_some(bucket))
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let size = scale_count(self.size, factor, 1);
        // A product beyond i64 saturates, beyond every bound; one that rounds to nothing is a microsecond all the same.
        let drip_rate = (self.drip_rate as f64 * factor).ceil() as i64;
        Self::new(size, self.drip_size, drip_rate.max(1), &self.bounds)
    }

    fn describe(&self) -> String {
        let mut text = format!("{{ size: {}", self.size);
        if self.drip_size != DEFAULT_DRIP_SIZE {
            text.push_str(&format!(", drip_size: {}", self.drip_size));
        }
        if self.drip_rate != DEFAULT_DRIP_RATE {
            text.push_str(&format!(", drip_rate: {}", format_duration(self.drip_rate)));
        }
        text + " }"
    }

    fn time_base(&self) -> String {
        self.drip_rate.to_string()
    }

    fn window(&self) -> Micros {
        self.drip_rate * self.size.div_ceil(self.drip_size) as Micros
    }

    fn lua_params(&self) -> Vec<f64> {
        vec![self.size as f64, self.drip_size as f64, self.drip_rate as f64, self.fullest as f64]
    }
}

impl Words for Bucket {
    fn words(&self) -> Vec<f64> {
        vec![self.ticked_at as f64, self.counter as f64]
    }

    fn from_words(words: &[f64]) -> Option<Self> {
        let [ticked_at, counter] = *words else { return None };
        let (ticked_at, counter) = (whole(ticked_at, -MAX_WORD, MAX_WORD)?, whole(counter, 0, MAX_COUNT as i64)?);
        Some(Self { ticked_at, counter: counter.unsigned_abs() })
    }
}
