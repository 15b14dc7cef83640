//! A limit of the GCRA family, and the algorithm that is nothing else.

pub use super::tat::Tat;
use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError, RateBound, Spent,
    fields::FieldSet,
    params::check_span,
    span::{Rate, Span},
    tat::Reach,
};
use crate::domain::{Decision, Micros, StepInput};

/// A limit of the GCRA family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Maximum units in a burst.
    pub(crate) limit: u64,
    /// The time that one unit takes.
    pub(crate) rate: Rate,
    /// The time that `limit` units take.
    pub(crate) depth: Span,
    /// The signature of its own arrival times, and the furthest arrival time that counts of other
    /// limits.
    pub(crate) reach: Reach,
}

impl Meter {
    /// Creates a meter of a burst of `limit` units, then `rate`.
    pub fn new(limit: u64, rate: Rate) -> Self {
        let depth = rate.span(limit);
        Self {
            limit,
            rate,
            depth,
            reach: Reach::new(rate, depth, &[rate.whole, rate.part, rate.den, depth.micros, depth.num]),
        }
    }

    /// Creates a meter of a burst of `limit` units, then `count` per `period`.
    ///
    /// # Errors
    /// [`ParamError`] names `field`, the source of `limit`, if `limit` is too large to stay exact.
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
    /// `depth` of the clock.
    // The list wraps the result once more; out of line it would be copied on the way, which takes as long as the
    // step.
    #[inline(always)]
    pub fn step(&self, state: Option<&Tat>, input: &StepInput) -> (Decision, Option<Tat>) {
        self.reach.step(state, self.rate, input, |known| self.step_at(known, input))
    }

    #[inline(always)]
    fn step_at(&self, known: Option<Span>, input: &StepInput) -> (Decision, Option<Tat>) {
        let (rate, now) = (self.rate, Span::whole(input.now));
        let (tat, cost) = (known.unwrap_or(now), input.cost.unsigned_abs());
        if input.cost < 0 {
            let back = rate.sub(tat, rate.span(cost)).max(now);
            return (self.pass(back, now), known.map(|_| self.reach.alone(back)));
        }
        let base = tat.max(now);
        if cost > self.limit {
            return (self.refuse(base, now, None), None);
        }
        let next = rate.add(base, rate.span(cost));
        let early = rate.sub(rate.sub(next, self.depth), now);
        if early > Span::whole(0) {
            return (self.refuse(base, now, Some(early.ceil())), None);
        }
        (self.pass(next, now), (cost > 0).then(|| self.reach.alone(next)))
    }

    /// Returns the state with these units charged now, whether they fit or not. It is at most twice the depth ahead,
    /// unless it was before, so that a moment plus it stays exact in a double.
    pub(crate) fn charge(&self, state: Option<&Tat>, spent: Spent, now: Micros) -> Tat {
        let (rate, present) = (self.rate, Span::whole(now));
        self.reach.charge(state, rate, spent, now, |known| {
            let at = known.map_or(present, |at| at.max(present));
            let furthest = rate.add(present, rate.add(self.depth, self.depth));
            let next = rate.add(at, rate.span(spent.units.min(self.limit))).min(furthest);
            self.reach.alone(next.max(at))
        })
    }

    fn pass(&self, at: Span, now: Span) -> Decision {
        Decision::pass(self.limit, self.remaining(at, now), self.rate.sub(at, now).ceil())
    }

    fn refuse(&self, at: Span, now: Span, retry_after: Option<Micros>) -> Decision {
        Decision::refuse(self.limit, self.remaining(at, now), retry_after, self.rate.sub(at, now).ceil())
    }

    /// Returns the largest cost that passes at the arrival time `at`, which is not before `now`.
    fn remaining(&self, at: Span, now: Span) -> u64 {
        let headroom = self.rate.sub(self.rate.add(self.depth, now), at);
        self.rate.units_within(headroom, self.limit)
    }

    /// Returns the numbers for `tat.lua`: most, whole, part, den, the depth in micros and parts, and the reach.
    pub(crate) fn lua_params(&self) -> Vec<f64> {
        let Self { limit, rate, depth, reach } = self;
        let numbers = [*limit as i64, rate.whole, rate.part, rate.den, depth.micros, depth.num];
        [&numbers.map(|number| number as f64)[..], &reach.lua_params()].concat()
    }
}

/// The parameters of an algorithm that is one meter.
pub trait MeteredFields: FieldSet {
    /// The name of the parameter that bounds a burst.
    const BURST: &'static str;

    /// Returns the maximum units in a burst, and the units per period.
    fn rate(&self) -> (u64, u64, Micros);
}

/// An algorithm that is one meter.
#[derive(Clone, Debug, PartialEq)]
pub struct Metered<F> {
    fields: F,
    meter: Meter,
}

impl<F: MeteredFields> Algorithm for Metered<F> {
    type Fields = F;
    type State = Tat;

    fn new(fields: F, _: &Bounds) -> Result<Self, ParamError> {
        let (burst, count, period) = fields.rate();
        Ok(Self { fields, meter: Meter::checked(F::BURST, burst, count, period)? })
    }

    fn fields(&self) -> &F {
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
        let (.., period) = self.fields.rate();
        Some(period)
    }

    fn rate_bound(&self) -> Option<RateBound> {
        let (burst, count, period) = self.fields.rate();
        Some(RateBound::Metered { burst, count, period })
    }

    fn window(&self) -> Micros {
        self.meter.depth.ceil()
    }

    fn lua_params(&self) -> Vec<f64> {
        self.meter.lua_params()
    }
}
