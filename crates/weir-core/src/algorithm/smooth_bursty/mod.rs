#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, ParamError,
    params::{
        MAX_COUNT, MAX_DEPTH, MAX_PERIOD, check_count, check_max_wait, check_period, check_span, patience, scale_count,
    },
    span::{Rate, Span},
    tat::Tat,
};
use crate::domain::{
    Ask, Decision, Micros,
    time::{SECOND, format_duration},
};

/// How long unused permits are stored where nobody says.
const DEFAULT_MAX_BURST: Micros = SECOND;

/// `count` permits per `period`; those of up to `max_burst` are stored, and whoever takes more leaves the next one to wait.
#[derive(Clone, Debug, PartialEq)]
pub struct SmoothBursty {
    count: u64,
    period: Micros,
    max_burst: Micros,
    max_wait: Option<Micros>,
    rate: Rate,
    /// The most permits that are stored, at least 1.
    limit: u64,
}

impl SmoothBursty {
    /// A limit with these parameters; without a `max_burst` it is a second.
    ///
    /// # Errors
    /// [`ParamError`] for a count outside 1 to 2^32, a period outside 1 µs to the bound, a longest burst outside 1 µs to
    /// 366 days or of more permits than 2^32 or than this rate can express exactly, or a longest wait over a day.
    pub fn new(
        count: u64,
        period: Micros,
        max_burst: Option<Micros>,
        max_wait: Option<Micros>,
        bounds: &Bounds,
    ) -> Result<Self, ParamError> {
        check_count("count", count)?;
        check_period("period", period, bounds)?;
        let max_burst = max_burst.unwrap_or(DEFAULT_MAX_BURST);
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
        check_max_wait(max_wait)?;
        Ok(Self { count, period, max_burst, max_wait, rate, limit })
    }

    /// The answer to a request that passes, while the store is full at `at`, which is not before `now`.
    fn pass(&self, at: Span, now: Micros, wait: Micros) -> Decision {
        let room = self.rate.sub(Span::whole(now + self.max_burst), at);
        Decision { wait, ..Decision::pass(self.limit, self.rate.units_within(room, self.limit), at.ceil() - now) }
    }
}

impl Algorithm for SmoothBursty {
    /// The moment at which the store is full again: `max_burst` after the one from which the next request may start.
    type State = Tat;

    #[inline]
    fn step(&self, state: Option<&Tat>, ask: &Ask) -> (Decision, Option<Tat>) {
        let (rate, now) = (self.rate, ask.now);
        let full = Span::whole(now);
        let at = state.map_or(full, |tat| tat.read(rate)).max(full);
        let spent = rate.span(ask.cost.unsigned_abs());
        if ask.cost < 0 {
            let back = rate.sub(at, spent).max(full);
            return (self.pass(back, now, 0), state.map(|_| Tat::new(back, rate)));
        }
        let wait = (at.ceil() - self.max_burst - now).max(0);
        if ask.cost == 0 {
            return (self.pass(at, now, wait), None);
        }
        let never = spent > Span::whole(MAX_DEPTH);
        let late = wait - patience(self.max_wait, ask.max_wait).unwrap_or(0);
        if never || late > 0 {
            let Decision { limit, remaining, reset_after, .. } = self.pass(at, now, 0);
            return (Decision::refuse(limit, remaining, (!never).then_some(late), reset_after), None);
        }
        let next = rate.add(at, spent);
        (self.pass(next, now, wait), Some(Tat::new(next, rate)))
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let bounds = Bounds { max_period: self.period };
        Self::new(scale_count(self.count, factor, 1), self.period, Some(self.max_burst), self.max_wait, &bounds)
    }

    fn describe(&self) -> String {
        let mut text = format!("{{ count: {}, period: {}", self.count, format_duration(self.period));
        if self.max_burst != DEFAULT_MAX_BURST {
            text.push_str(&format!(", max_burst: {}", format_duration(self.max_burst)));
        }
        if let Some(max_wait) = self.max_wait {
            text.push_str(&format!(", max_wait: {}", format_duration(max_wait)));
        }
        text + " }"
    }

    fn window(&self) -> Micros {
        self.rate.span(self.limit).ceil().max(1)
    }

    fn lua_params(&self) -> Vec<f64> {
        let Self { max_burst, max_wait, rate, limit, .. } = self;
        let words = [rate.whole, rate.part, rate.den, *max_burst, *limit as i64, max_wait.unwrap_or(-1)];
        words.map(|word| word as f64).to_vec()
    }
}
