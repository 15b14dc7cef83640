//! The theoretical arrival time (TAT): one number for how far ahead of the clock a key has spent.
//!
//! It is the state of the whole GCRA family. `tat.lua` is the same in Lua.

use super::{
    ParamError,
    params::{MAX_COUNT, check_span},
    span::{Rate, Span},
    state::{EncodedState, moment, whole},
};
use crate::domain::{Decision, Micros, StepInput};

/// A theoretical arrival time, and the signature of the limit that computed it, less one: below 2^32, and beyond that a
/// number of 20 bits for the factor of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tat {
    micros: Micros,
    num: u32,
    maker: u64,
}

impl EncodedState for Tat {
    /// Encodes the micros, the numerator and the signature, which is above the numerator.
    fn encode(&self) -> Vec<f64> {
        vec![self.micros as f64, f64::from(self.num), (self.maker + 1) as f64]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [micros, num, maker] = *numbers else { return None };
        let micros = moment(micros)?;
        let maker = whole(maker, 1, 1 << 52)?;
        let num = whole(num, 0, (maker - 1).min(MAX_COUNT as i64 - 1))?;
        Some(Self { micros, num: num as u32, maker: (maker - 1).unsigned_abs() })
    }
}

/// The furthest time ahead of the clock that counts of another limit's arrival time, and the signature of a limit's
/// own. Its own, under any factor of a request, are never clamped here, since one further ahead means that a clock
/// stepped back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    furthest: Span,
    maker: u64,
}

impl Reach {
    /// Creates the reach of a limit with this rate. Limits with the same `signed` numbers take each other's arrival
    /// times for their own.
    pub(crate) fn new(rate: Rate, furthest: Span, signed: &[i64]) -> Self {
        let mix = |hash: u64, number: &i64| {
            let hash = (hash ^ *number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^ (hash >> 32)
        };
        let hash = signed.iter().fold(0, mix) as u32;
        // Above every numerator.
        Self { furthest, maker: u64::from(hash).max((rate.den - 1).unsigned_abs()) }
    }

    /// Returns the reach of a limit that shares its states with another one, by factors of requests: at least as far, and
    /// with a signature of the same limit.
    fn reaching(self, other: Self) -> Self {
        let factor = self.maker % ((1 << 20) - 1) + 1;
        let is_of_limit = self.maker as u32 == other.maker as u32;
        let maker = if is_of_limit { self.maker } else { factor << 32 | u64::from(other.maker as u32) };
        // Rounded up, as the parts of the other one's rate differ.
        let furthest = self.furthest.max(Span::whole(other.furthest.ceil()));
        Self { furthest, maker }
    }

    /// Returns an arrival time with the limit's own signature.
    pub(crate) fn state(&self, at: Span) -> Tat {
        Tat { micros: at.micros, num: at.num as u32, maker: self.maker }
    }

    /// Returns the arrival time of a state, and whether it was clamped. If another limit made it, or the same one under
    /// another factor, its fraction rounds up; if another limit did, it is clamped to the furthest that this limit could
    /// have made.
    #[inline]
    pub(crate) fn read(&self, tat: &Tat, rate: Rate, now: Span) -> (Span, bool) {
        let at = Span { micros: tat.micros, num: i64::from(tat.num) };
        let is_own = tat.maker == self.maker;
        if is_own && at.num < rate.den {
            return (at, false);
        }
        let is_of_limit = tat.maker as u32 == self.maker as u32;
        let (at, furthest) = (Span::whole(at.ceil()), rate.add(now, self.furthest));
        if at > furthest && !is_of_limit { (furthest, true) } else { (at, false) }
    }

    /// Returns the numbers for `tat.lua`.
    pub(crate) fn lua_params(&self) -> [f64; 3] {
        let Self { furthest, maker } = *self;
        [(maker + 1) as f64, furthest.micros as f64, furthest.num as f64]
    }
}

/// A limit of the GCRA family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Maximum units at once.
    pub(crate) limit: u64,
    /// The time that one unit takes.
    pub(crate) rate: Rate,
    /// The time that `limit` units take.
    pub(crate) depth: Span,
    /// The signature of its own arrival times, and the furthest that counts of others.
    pub(crate) reach: Reach,
}

impl Meter {
    /// Creates a meter of `limit` units at once, then `rate`.
    pub fn new(limit: u64, rate: Rate) -> Self {
        let depth = rate.span(limit);
        Self {
            limit,
            rate,
            depth,
            reach: Reach::new(rate, depth, &[rate.whole, rate.part, rate.den, depth.micros, depth.num]),
        }
    }

    /// Creates a meter of `limit` units at once, then `count` per `period`.
    ///
    /// # Errors
    /// [`ParamError`] names `field`, where `limit` comes from, when that is too much to stay exact.
    pub(crate) fn checked(field: &str, limit: u64, count: u64, period: Micros) -> Result<Self, ParamError> {
        let rate = Rate::new(count, period);
        check_span(field, limit, rate)?;
        Ok(Self::new(limit, rate))
    }

    /// See [`super::Algorithm::reaching`].
    pub(crate) fn reaching(self, other: &Self) -> Self {
        Self { reach: self.reach.reaching(other.reach), ..self }
    }

    /// Decides one request by the generic cell rate algorithm: it passes while the arrival time after it stays within
    /// `depth` of the clock. A refusal stores a clamped state, so that it lasts no longer than the answer says.
    // The list wraps the result once more; out of line it would be copied on the way, which takes as long as the
    // step.
    #[inline(always)]
    pub fn step(&self, state: Option<&Tat>, input: &StepInput) -> (Decision, Option<Tat>) {
        let (rate, now) = (self.rate, Span::whole(input.now));
        let (tat, is_clamped) = state.map_or((now, false), |tat| self.reach.read(tat, rate, now));
        if input.cost < 0 {
            let back = rate.sub(tat, rate.span(input.cost.unsigned_abs())).max(now);
            return (self.pass(back, now), state.map(|_| self.reach.state(back)));
        }
        let clamped = (is_clamped && input.cost > 0).then(|| self.reach.state(tat));
        let cost = input.cost.unsigned_abs();
        let base = tat.max(now);
        if cost > self.limit {
            return (self.refuse(base, now, None), clamped);
        }
        let next = rate.add(base, rate.span(cost));
        let early = rate.sub(rate.sub(next, self.depth), now);
        if early > Span::whole(0) {
            return (self.refuse(base, now, Some(early.ceil())), clamped);
        }
        (self.pass(next, now), (cost > 0).then(|| self.reach.state(next)))
    }

    /// Returns the state with `units` charged now, whether they fit or not. It is at most twice the depth ahead,
    /// unless it was before, so that a moment plus it stays exact in a double.
    pub(crate) fn charge(&self, state: Option<&Tat>, units: u64, now: Micros) -> Tat {
        let (rate, now) = (self.rate, Span::whole(now));
        let at = state.map_or(now, |tat| self.reach.read(tat, rate, now).0).max(now);
        let furthest = rate.add(now, rate.add(self.depth, self.depth));
        let next = rate.add(at, rate.span(units.min(self.limit))).min(furthest);
        self.reach.state(next.max(at))
    }

    fn pass(&self, at: Span, now: Span) -> Decision {
        Decision::pass(self.limit, self.remaining(at, now), self.rate.sub(at, now).ceil())
    }

    fn refuse(&self, at: Span, now: Span, retry_after: Option<Micros>) -> Decision {
        Decision::refuse(self.limit, self.remaining(at, now), retry_after, self.rate.sub(at, now).ceil())
    }

    /// Returns the largest cost that passes at the arrival time `at`, which is not before `now`.
    fn remaining(&self, at: Span, now: Span) -> u64 {
        let room = self.rate.sub(self.rate.add(self.depth, now), at);
        self.rate.units_within(room, self.limit)
    }

    /// Returns the numbers for `tat.lua`: most, whole, part, den, the depth in micros and parts, and the reach.
    pub(crate) fn lua_params(&self) -> Vec<f64> {
        let Self { limit, rate, depth, reach } = self;
        let numbers = [*limit as i64, rate.whole, rate.part, rate.den, depth.micros, depth.num];
        [&numbers.map(|number| number as f64)[..], &reach.lua_params()].concat()
    }
}
