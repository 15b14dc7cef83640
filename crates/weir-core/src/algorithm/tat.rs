//! The theoretical arrival time: one number that tells how far ahead of the clock a key has spent.
//!
//! It is the state of the whole gcra family. `tat.lua` is the same in Lua.

use super::{
    ParamError,
    params::{MAX_COUNT, check_span},
    span::{Rate, Span},
    state::{EncodedState, moment, whole},
};
use crate::domain::{Ask, Decision, Micros};

/// A theoretical arrival time with the denominator that it was computed under. The denominator is kept less one, so
/// that 2^32 fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tat {
    micros: Micros,
    num: u32,
    den_less_one: u32,
}

impl Tat {
    pub(super) fn new(at: Span, rate: Rate) -> Self {
        Self { micros: at.micros, num: at.num as u32, den_less_one: (rate.den() - 1) as u32 }
    }

    /// Read under `rate`. When the denominator has changed with the limit, the fraction rounds up.
    pub(super) fn read(self, rate: Rate) -> Span {
        let at = Span { micros: self.micros, num: i64::from(self.num) };
        if i64::from(self.den_less_one) + 1 == rate.den() { at } else { Span::whole(at.ceil()) }
    }
}

impl EncodedState for Tat {
    /// Micros, numerator, denominator.
    fn encode(&self) -> Vec<f64> {
        vec![self.micros as f64, f64::from(self.num), f64::from(self.den_less_one) + 1.0]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [micros, num, den] = *numbers else { return None };
        let micros = moment(micros)?;
        let den = whole(den, 1, MAX_COUNT as i64)?;
        let num = whole(num, 0, den - 1)?;
        Some(Self { micros, num: num as u32, den_less_one: (den - 1) as u32 })
    }
}

/// A limit as the meter below sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Most units at once.
    pub most: u64,
    /// The time that one unit takes.
    pub rate: Rate,
    /// The time that `most` units take.
    pub depth: Span,
}

impl Meter {
    /// `most` units at once, then `rate`.
    pub fn new(most: u64, rate: Rate) -> Self {
        Self { most, rate, depth: rate.span(most) }
    }

    /// `most` units at once, then `count` per `period`.
    ///
    /// # Errors
    /// [`ParamError`] names `field`, where `most` comes from, when that is too much to stay exact.
    pub fn checked(field: &str, most: u64, count: u64, period: Micros) -> Result<Self, ParamError> {
        let rate = Rate::new(count, period);
        check_span(field, most, rate)?;
        Ok(Self::new(most, rate))
    }

    /// One decision by the generic cell rate algorithm: a request passes while the arrival time that it would leave
    /// behind stays within `depth` of the clock.
    // Its answer is wrapped once more by the list; out of line it would be copied on the way, which takes as long as the step.
    #[inline(always)]
    pub fn step(&self, state: Option<&Tat>, ask: &Ask) -> (Decision, Option<Tat>) {
        let (rate, now) = (self.rate, Span::whole(ask.now));
        let tat = state.map_or(now, |tat| tat.read(rate));
        if ask.cost < 0 {
            let back = rate.sub(tat, rate.span(ask.cost.unsigned_abs())).max(now);
            return (self.pass(back, now), state.map(|_| Tat::new(back, rate)));
        }
        let cost = ask.cost.unsigned_abs();
        let base = tat.max(now);
        if cost > self.most {
            return (self.refuse(base, now, None), None);
        }
        let next = rate.add(base, rate.span(cost));
        let early = rate.sub(rate.sub(next, self.depth), now);
        if early > Span::whole(0) {
            return (self.refuse(base, now, Some(early.ceil())), None);
        }
        (self.pass(next, now), (cost > 0).then(|| Tat::new(next, rate)))
    }

    fn pass(&self, at: Span, now: Span) -> Decision {
        Decision::pass(self.most, self.remaining(at, now), self.rate.sub(at, now).ceil())
    }

    fn refuse(&self, at: Span, now: Span, retry_after: Option<Micros>) -> Decision {
        Decision::refuse(self.most, self.remaining(at, now), retry_after, self.rate.sub(at, now).ceil())
    }

    /// The largest cost that passes when the arrival time stands at `at`, which is not before `now`.
    fn remaining(&self, at: Span, now: Span) -> u64 {
        let room = self.rate.sub(self.rate.add(self.depth, now), at);
        self.rate.units_within(room, self.most)
    }

    /// What `tat.lua` takes: most, whole, part, den and the depth in micros and parts.
    pub fn lua_params(&self) -> Vec<f64> {
        let Self { most, rate, depth } = self;
        [*most as i64, rate.whole, rate.part, rate.den, depth.micros, depth.num].map(|number| number as f64).to_vec()
    }
}
