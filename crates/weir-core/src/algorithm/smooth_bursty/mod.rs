#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError, UndoRule,
    fields::fields,
    kinds::{Length, Period, Start, Units, Wait},
    params::{MAX_COUNT, MAX_DEPTH, MAX_PERIOD, SHAPES, accepted_wait, check_span},
    span::{Rate, Span},
    tat::{Reach, Tat},
};
use crate::domain::{
    Decision, Micros, StepInput,
    time::{SECOND, format_duration},
};

fields! {
    pub(crate) struct Fields as proto::SmoothBursty {
        count: Units,
        period: Period,
        max_burst: Length = SECOND,
        max_wait: Wait = None,
        start: Start = Start::Full,
    }
    examples [
        { count: 10, period: 10s, max_burst: 10s },
        { count: 5, period: 1s },
        { count: 1, period: 2s },
        { count: 3, period: 1s, max_burst: 5s, max_wait: 2s },
        { count: 7, period: 1m, max_burst: 1m, max_wait: 0s },
        { count: 4, period: 1s, max_burst: 5s, max_wait: 2s, start: empty },
        { count: 1, period: 3s, start: empty },
        { count: 3000000, period: 1s, max_burst: 1ms },
        { count: 999983, period: 1d, max_burst: 1d, max_wait: 1d },
        { count: 4294967296, period: 31d, max_burst: 31d },
        { count: 1, period: 31d, max_burst: 1us },
        { count: 20, period: 31d, max_burst: 310d },
        { count: 40, period: 31d, max_burst: 310d },
    ]
}

/// Time for which a key that starts empty is remembered after its permits are full. Then it starts empty again.
const KEPT_FULL: Micros = 3_600 * SECOND;

/// `count` permits per `period`; up to `max_burst` of them are stored, and a request that takes more makes the next
/// one wait.
#[derive(Clone, Debug, PartialEq)]
pub struct SmoothBursty {
    fields: Fields,
    rate: Rate,
    /// Maximum number of stored permits, at least 1.
    limit: u64,
    /// The signature of its own states. Limits with the same `max_burst` share it, since under
    /// another one spent permits would look like a debt. In a state of another limit, the store is
    /// at worst empty.
    reach: Reach,
    /// Time for which a state is valid after the store is full.
    kept: Micros,
}

/// A key at the present time.
struct BucketView {
    /// The time at which the store is full, not before now.
    at: Span,
    /// Time until the key is as if never used; 0 if it is now.
    reset_after: Micros,
}

impl SmoothBursty {
    fn view(&self, known: Option<Span>, now: Micros) -> BucketView {
        match known.map(|at| (at, at.ceil() + self.kept - now)) {
            Some((at, reset_after)) if reset_after > 0 => BucketView { at: at.max(Span::whole(now)), reset_after },
            _ => BucketView { at: self.unused(now), reset_after: 0 },
        }
    }

    /// Returns the time at which the store of an unused key is full.
    fn unused(&self, now: Micros) -> Span {
        Span::whole(match self.fields.start {
            Start::Full => now,
            Start::Empty => now + self.fields.max_burst,
        })
    }

    /// Returns the decision for a request that passes and leaves a store that is full at `at`, which is not before
    /// `now`.
    fn pass(&self, at: Span, reset_after: Micros, now: Micros, wait: Micros) -> Decision {
        let headroom = self.rate.sub(Span::whole(now + self.fields.max_burst), at);
        Decision { wait, ..Decision::pass(self.limit, self.rate.units_within(headroom, self.limit), reset_after) }
    }

    /// Like `pass`, and also returns the state to store.
    fn write(&self, at: Span, now: Micros, wait: Micros) -> (Decision, Tat) {
        (self.pass(at, at.ceil() + self.kept - now, now, wait), self.reach.alone(at))
    }

    fn step_at(&self, known: Option<Span>, input: &StepInput) -> (Decision, Option<Tat>) {
        let now = input.now;
        let view = self.view(known, now);
        let BucketView { at, reset_after } = view;
        let spent = self.rate.span(input.cost.unsigned_abs());
        if input.cost < 0 {
            return self.refund(known, &view, spent, now);
        }
        let wait = (at.ceil() - self.fields.max_burst - now).max(0);
        if input.cost == 0 {
            return (self.pass(at, reset_after, now, wait), None);
        }
        let never = spent > Span::whole(MAX_DEPTH);
        let late = wait - accepted_wait(self.fields.max_wait, input.max_wait).unwrap_or(0);
        if never || late > 0 {
            let Decision { limit, remaining, .. } = self.pass(at, reset_after, now, 0);
            return (Decision::refuse(limit, remaining, (!never).then_some(late), reset_after), None);
        }
        let (decision, next) = self.write(self.rate.add(at, spent), now, wait);
        (decision, Some(next))
    }

    /// Handles a refund.
    fn refund(&self, known: Option<Span>, view: &BucketView, spent: Span, now: Micros) -> (Decision, Option<Tat>) {
        if view.reset_after == 0 {
            // As if never used, and stays so.
            let forgotten = known.map(|_| self.reach.alone(Span::whole(now - self.kept)));
            return (self.pass(view.at, 0, now, 0), forgotten);
        }
        let (decision, next) = self.write(self.rate.sub(view.at, spent).max(Span::whole(now)), now, 0);
        (decision, Some(next))
    }
}

impl Algorithm for SmoothBursty {
    type Fields = Fields;
    /// The time at which the store is full again: `max_burst` after the time from which the next request may start.
    type State = Tat;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let Fields { count, period, max_burst, .. } = fields;
        let wrong = |reason| Err(ParamError::new("max_burst", reason));
        if !(1..=MAX_PERIOD).contains(&max_burst) {
            return wrong(format!("max_burst must be 1us to 366d, not {}", format_duration(max_burst)));
        }
        let stored = i128::from(max_burst) * i128::from(count) / i128::from(period);
        let Some(stored) = u64::try_from(stored).ok().filter(|stored| *stored <= MAX_COUNT) else {
            return wrong("max_burst stores more than 2^32 permits at this rate".to_owned());
        };
        let (rate, limit) = (Rate::new(count, period), stored.max(1));
        check_span("max_burst", limit, rate)?;
        let reach = Reach::new(rate, Span::whole(max_burst), &[max_burst]);
        let kept = if fields.start == Start::Empty { KEPT_FULL } else { 0 };
        Ok(Self { fields, rate, limit, reach, kept })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Tat>, input: &StepInput) -> (Decision, Option<Tat>) {
        self.reach.step(state, self.rate, input, |known| self.step_at(known, input))
    }

    fn next_after(&self, state: Option<&Tat>, input: &StepInput, _: &Decision) -> Option<Micros> {
        let (rate, stored) = (self.rate, Span::whole(self.fields.max_burst));
        let known = state.map(|tat| self.reach.read(tat, rate, Span::whole(input.now)).0);
        let (BucketView { at, reset_after }, permit) = (self.view(known, input.now), rate.span(1));
        // Without a request, a key that starts empty remains empty.
        let fills = permit <= stored && (self.fields.start == Start::Full || reset_after > 0);
        fills.then(|| rate.sub(rate.add(at, permit), stored).ceil() - input.now)
    }

    fn starting_full(&self) -> Option<Self> {
        let fields = Fields { start: Start::Full, ..self.fields };
        (self.fields.start == Start::Empty).then(|| Self { fields, kept: 0, ..self.clone() })
    }

    /// While a state is remembered, permits are stored up to the maximum: refunds beyond that are lost.
    fn undo_rule(&self) -> UndoRule {
        if self.fields.start == Start::Full { UndoRule::WhileItLasts } else { UndoRule::Never }
    }

    fn kept_until(&self, tat: &Tat) -> Option<Micros> {
        self.reach.kept_until(tat)
    }

    fn sibling_period(&self) -> Option<Micros> {
        Some(self.fields.period)
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        Err(SHAPES)
    }

    fn window(&self) -> Micros {
        self.rate.span(self.limit).ceil().max(1)
    }

    fn lua_params(&self) -> Vec<f64> {
        let Self { fields, rate, limit, reach, kept } = self;
        let max_wait = fields.max_wait.unwrap_or(-1);
        let numbers = [rate.whole, rate.part, rate.den, fields.max_burst, *limit as i64, max_wait];
        [&numbers.map(|number| number as f64)[..], &reach.lua_params(), &[*kept as f64]].concat()
    }
}
