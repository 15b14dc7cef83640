#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, Held, ParamError,
    fields::fields,
    kinds::{Length, Period, Units, Wait},
    params::{MAX_COUNT, MAX_DEPTH, MAX_PERIOD, SHAPES, check_span, patience},
    span::{Rate, Span},
    tat::{Reach, Tat},
};
use crate::domain::{
    Ask, Decision, Micros,
    time::{SECOND, format_duration},
};

fields! {
    pub(crate) struct Fields as proto::SmoothBursty {
        count: Units,
        period: Period,
        max_burst: Length = SECOND,
        max_wait: Wait = None,
    }
    examples [
        { count: 10, period: 10s, max_burst: 10s },
        { count: 5, period: 1s },
        { count: 1, period: 2s },
        { count: 3, period: 1s, max_burst: 5s, max_wait: 2s },
        { count: 7, period: 1m, max_burst: 1m, max_wait: 0s },
        { count: 3000000, period: 1s, max_burst: 1ms },
        { count: 999983, period: 1d, max_burst: 1d, max_wait: 1d },
        { count: 4294967296, period: 31d, max_burst: 31d },
        { count: 1, period: 31d, max_burst: 1us },
        { count: 20, period: 31d, max_burst: 310d },
        { count: 40, period: 31d, max_burst: 310d },
    ]
}

/// `count` permits per `period`; those of up to `max_burst` are stored, and a request that takes more makes the next one wait.
#[derive(Clone, Debug, PartialEq)]
pub struct SmoothBursty {
    fields: Fields,
    rate: Rate,
    /// The most permits that are stored, at least 1.
    limit: u64,
    /// Whose states are its own: those of limits with the same `max_burst`, since under another one what was spent would
    /// look like a debt. Of the others the store is empty at most.
    reach: Reach,
}

impl SmoothBursty {
    /// The answer to a request that passes, while the store is full at `at`, which is not before `now`.
    fn pass(&self, at: Span, now: Micros, wait: Micros) -> Decision {
        let room = self.rate.sub(Span::whole(now + self.fields.max_burst), at);
        Decision { wait, ..Decision::pass(self.limit, self.rate.units_within(room, self.limit), at.ceil() - now) }
    }
}

impl Algorithm for SmoothBursty {
    type Fields = Fields;
    /// The moment at which the store is full again: `max_burst` after the one from which the next request may start.
    type State = Tat;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let Fields { count, period, max_burst, .. } = fields;
        let wrong = |reason| Err(ParamError::new("max_burst", reason));
        if !(1..=MAX_PERIOD).contains(&max_burst) {
            return wrong(format!("max_burst is 1us to 366d, not {}", format_duration(max_burst)));
        }
        let stored = i128::from(max_burst) * i128::from(count) / i128::from(period);
        let Some(stored) = u64::try_from(stored).ok().filter(|stored| *stored <= MAX_COUNT) else {
            return wrong("max_burst stores more than 2^32 permits at this rate".to_owned());
        };
        let (rate, limit) = (Rate::new(count, period), stored.max(1));
        check_span("max_burst", limit, rate)?;
        let reach = Reach::new(rate, Span::whole(max_burst), &[max_burst]);
        Ok(Self { fields, rate, limit, reach })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Tat>, ask: &Ask) -> (Decision, Option<Tat>) {
        let (rate, now) = (self.rate, ask.now);
        let full = Span::whole(now);
        let (at, is_cut) = state.map_or((full, false), |tat| self.reach.read(tat, rate, full));
        let at = at.max(full);
        let spent = rate.span(ask.cost.unsigned_abs());
        if ask.cost < 0 {
            let back = rate.sub(at, spent).max(full);
            return (self.pass(back, now, 0), state.map(|_| self.reach.state(back)));
        }
        let wait = (at.ceil() - self.fields.max_burst - now).max(0);
        if ask.cost == 0 {
            return (self.pass(at, now, wait), None);
        }
        let never = spent > Span::whole(MAX_DEPTH);
        let late = wait - patience(self.fields.max_wait, ask.max_wait).unwrap_or(0);
        if never || late > 0 {
            let Decision { limit, remaining, reset_after, .. } = self.pass(at, now, 0);
            let cut = is_cut.then(|| self.reach.state(at));
            return (Decision::refuse(limit, remaining, (!never).then_some(late), reset_after), cut);
        }
        let next = rate.add(at, spent);
        (self.pass(next, now, wait), Some(self.reach.state(next)))
    }

    fn next_after(&self, state: Option<&Tat>, ask: &Ask, _: &Decision) -> Option<Micros> {
        let (rate, now, stored) = (self.rate, Span::whole(ask.now), Span::whole(self.fields.max_burst));
        let at = state.map_or(now, |tat| self.reach.read(tat, rate, now).0).max(now);
        let permit = rate.span(1);
        (permit <= stored).then(|| rate.sub(rate.add(at, permit), stored).ceil() - ask.now)
    }

    fn sibling_period(&self) -> Option<Micros> {
        Some(self.fields.period)
    }

    fn holdable(&self) -> Result<Held, &'static str> {
        Err(SHAPES)
    }

    fn window(&self) -> Micros {
        self.rate.span(self.limit).ceil().max(1)
    }

    fn lua_params(&self) -> Vec<f64> {
        let Self { fields, rate, limit, reach } = self;
        let max_wait = fields.max_wait.unwrap_or(-1);
        let numbers = [rate.whole, rate.part, rate.den, fields.max_burst, *limit as i64, max_wait];
        [&numbers.map(|number| number as f64)[..], &reach.lua_params()].concat()
    }
}
