#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError, Params, Spent,
    fields::fields,
    kinds::{Kind, Length, OnCheck, Units},
    state::{EncodedState, MAX_WHOLE, whole},
};
use crate::domain::{Decision, Micros, StepInput, request::RESERVATION_TTL, time::SECOND};

fields! {
    pub(crate) struct Fields as proto::Concurrency {
        max: Units,
        ttl: Length,
        check: OnCheck = OnCheck::Refuse,
    }
    examples [
        { max: 10, ttl: 10s },
        { max: 100, ttl: 1m },
        { max: 1, ttl: 10ms, check: peek },
        { max: 3, ttl: 1s },
        { max: 4294967296, ttl: 1d },
    ]
}

/// Retry time of a refusal: when a slot will be released is unknown.
const RETRY_AFTER: Micros = SECOND;

/// `max` slots, each held for at most `ttl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Concurrency {
    fields: Fields,
}

impl Params {
    /// Returns the limit, if it is a concurrency limit.
    #[inline]
    pub fn as_concurrency(&self) -> Option<&Concurrency> {
        if let Self::Concurrency(limit) = self { Some(limit) } else { None }
    }
}

impl Concurrency {
    /// Returns the maximum time for which a slot is held, unless it is extended.
    pub(crate) fn ttl(&self) -> Micros {
        self.fields.ttl
    }

    /// Returns the answer to a check, which takes no slot.
    pub(crate) fn on_check(&self) -> OnCheck {
        self.fields.check
    }
}

/// Slots held at the time of a decision. Created for it, and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots(u64);

impl EncodedState for Slots {
    fn encode(&self) -> Vec<f64> {
        vec![self.0 as f64]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [held] = *numbers else { return None };
        whole(held, 1, MAX_WHOLE).map(|held| Self(held.unsigned_abs()))
    }
}

impl Algorithm for Concurrency {
    type Fields = Fields;
    type State = Slots;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        if RESERVATION_TTL.contains(&fields.ttl) {
            return Ok(Self { fields });
        }
        Err(ParamError::new("ttl", format!("ttl must be 10ms to 1d, not {}", Length::write(fields.ttl))))
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    /// A request takes one slot or none, regardless of its cost.
    fn step(&self, state: Option<&Slots>, input: &StepInput) -> (Decision, Option<Slots>) {
        let Fields { max, ttl, .. } = self.fields;
        let held = state.map_or(0, |slots| slots.0);
        let (free, taken) = (max.saturating_sub(held), input.cost.clamp(0, 1).unsigned_abs());
        let decision = match input.cost < 0 || held + taken <= max {
            true => Decision::pass(max, free, 0),
            false => Decision::refuse(max, free, Some(RETRY_AFTER.min(ttl)), 0),
        };
        (decision, None)
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        Ok(HoldAccuracy::Exact)
    }

    fn charge(&self, state: Option<&Slots>, Spent { units, .. }: Spent, _: Micros, _: Micros) -> Option<Slots> {
        let held = state.map_or(0, |slots| slots.0).saturating_add(units).min(MAX_WHOLE.unsigned_abs());
        (held > 0).then_some(Slots(held))
    }

    fn window(&self) -> Micros {
        self.fields.ttl
    }
}
