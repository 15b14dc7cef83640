#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError, Spent, UndoRule,
    fields::fields,
    kinds::{Flag, Length, Period, Units},
    params::{CHARGES_DENIED, MAX_COUNT},
    runs::Runs,
    sliding::Window,
};
use crate::domain::{Decision, Micros, StepInput, time::format_duration};

/// Maximum number of buckets in a window.
const MAX_BUCKETS: i64 = 1_000;

/// Number of bits for the largest count. Those above are enough for the number of buckets.
const BITS: u32 = 33;

fields! {
    pub(crate) struct Fields as proto::SlidingBuckets {
        count: Units,
        period: Period,
        resolution: Length,
        charge_denied: Flag = false,
    }
    examples [
        { count: 10, period: 10s, resolution: 1s },
        { count: 3, period: 1h, resolution: 20m },
        { count: 5, period: 1s, resolution: 300ms },
        { count: 7, period: 1m, resolution: 1m },
        { count: 5, period: 1s, resolution: 200ms, charge_denied: true },
        { count: 1000000, period: 1d, resolution: 90s },
        { count: 4294967296, period: 31d, resolution: 1h },
        { count: 2, period: 3us, resolution: 1us },
        { count: 500, period: 31d, resolution: 1d },
        { count: 400, period: 30d, resolution: 6h },
    ]
}

/// `count` units in any span of length `period`, counted in buckets of length `resolution`.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingBuckets {
    fields: Fields,
    window: Window,
}

impl Algorithm for SlidingBuckets {
    type Fields = Fields;
    type State = Runs<BITS>;

    /// The period need not be a multiple of the resolution.
    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let Fields { count, period, resolution, charge_denied } = fields;
        let min = (period + MAX_BUCKETS - 1) / MAX_BUCKETS;
        if !(min..=period).contains(&resolution) {
            let [min, max, resolution] = [min, period, resolution].map(format_duration);
            let reason =
                format!("resolution must be {min} ({MAX_BUCKETS} buckets) to {max} (the period), not {resolution}");
            return Err(ParamError::new("resolution", reason));
        }
        // A bucket counts until all of it has left the window, as if all of its units were spent at its end.
        let window = Window::new(count, MAX_COUNT, resolution, period + resolution).with(0, charge_denied);
        Ok(Self { fields, window })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Self::State>, input: &StepInput) -> (Decision, Option<Self::State>) {
        self.window.step(state, input)
    }

    fn time_base(&self) -> String {
        format!("{}/{}", self.fields.period, self.fields.resolution)
    }

    fn charges_denied(&self) -> bool {
        self.fields.charge_denied
    }

    fn sparing_denied(&self) -> Option<Self> {
        let fields = Fields { charge_denied: false, ..self.fields };
        self.fields.charge_denied.then(|| Self { fields, window: self.window.with(0, false) })
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        if self.fields.charge_denied { Err(CHARGES_DENIED) } else { Ok(HoldAccuracy::Exact) }
    }

    fn charge(&self, state: Option<&Self::State>, spent: Spent, now: Micros, _: Micros) -> Option<Self::State> {
        self.window.charge(state, spent, now)
    }

    fn undo_rule(&self) -> UndoRule {
        UndoRule::ByMark
    }

    fn marks_max(&self) -> u64 {
        // One more than fit in the period, as a bucket counts until all of it has left.
        (self.fields.period / self.fields.resolution) as u64 + 1
    }

    fn window(&self) -> Micros {
        self.fields.period
    }

    fn lua_params(&self) -> Vec<f64> {
        self.window.lua_params()
    }
}
