#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, MAX_WORD, ParamError, TakesBack, Words,
    params::{MAX_COUNT, check_count, check_max_wait, check_period, patience, scale_count},
    whole,
};
use crate::domain::{Ask, Decision, Micros, time::format_duration};

/// `count` permits in each cycle of length `period`, which may be reserved ahead.
#[derive(Clone, Debug, PartialEq)]
pub struct Cycle {
    count: u64,
    period: Micros,
    max_wait: Option<Micros>,
}

/// What was used of the latest cycle that has been reached into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Where that cycle begins.
    start: Micros,
    /// Permits used of it. Below 0 where it had not begun yet: then all those of the cycles before it are taken.
    permits: i64,
}

/// A state as it stands at some moment.
#[derive(Clone, Copy)]
struct Place {
    start: Micros,
    used: u64,
    begun: bool,
}

impl Place {
    fn state(self) -> Used {
        let used = self.used as i64;
        Used { start: self.start, permits: if self.begun { used } else { -used } }
    }

    /// How long until the cycle begins.
    fn wait(self, now: Micros) -> Micros {
        if self.begun { 0 } else { self.start - now }
    }
}

impl Cycle {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a count outside 1 to 2^32, a period outside 1 µs to the bound, or a longest wait over a day.
    pub fn new(count: u64, period: Micros, max_wait: Option<Micros>, bounds: &Bounds) -> Result<Self, ParamError> {
        check_count("count", count)?;
        check_period("period", period, bounds)?;
        check_max_wait(max_wait)?;
        Ok(Self { count, period, max_wait })
    }

    /// Where the cycle at hand begins.
    fn start(&self, now: Micros) -> Micros {
        now - now.rem_euclid(self.period)
    }

    /// The latest cycle of which something is used. One that had begun is the one at hand until its end, also where the
    /// clock has stepped back before it.
    fn place(&self, state: Option<&Used>, now: Micros) -> Place {
        let start = self.start(now);
        match state {
            Some(state) if state.permits != 0 && state.start >= start => {
                let begun = state.permits > 0 || state.start == start;
                Place { start: state.start, used: state.permits.unsigned_abs(), begun }
            }
            _ => Place { start, used: 0, begun: true },
        }
    }

    /// What is left of the latest cycle.
    fn left(&self, place: Place) -> u64 {
        self.count.saturating_sub(place.used)
    }

    /// After a charge of at most a cycle's permits: they are the rest of the latest cycle, and where that is too little the
    /// first ones of the next.
    fn charged(&self, place: Place, units: u64) -> Place {
        match units.checked_sub(self.left(place)) {
            Some(used) if used > 0 => Place { start: place.start + self.period, used, begun: false },
            _ => Place { used: place.used + units, ..place },
        }
    }

    /// After a refund: from the latest permits back, at most until the cycle at hand is full.
    fn refunded(&self, place: Place, units: u64, now: Micros) -> Place {
        if units < place.used || place.begun {
            return Place { used: place.used.saturating_sub(units), ..place };
        }
        let start = self.start(now);
        let units = units - place.used;
        let cycles = units / self.count + 1;
        if cycles > ((place.start - start) / self.period).unsigned_abs() {
            return Place { start, used: 0, begun: true };
        }
        let back = place.start - cycles as i64 * self.period;
        Place { start: back, used: self.count - units % self.count, begun: back == start }
    }

    fn pass(&self, place: Place, now: Micros, wait: Micros) -> Decision {
        let remaining = if place.begun { self.left(place) } else { 0 };
        let reset_after = if place.used > 0 { place.start + self.period - now } else { 0 };
        Decision { wait, ..Decision::pass(self.count, remaining, reset_after) }
    }

    fn refuse(&self, place: Place, now: Micros, retry_after: Option<Micros>) -> (Decision, Option<Used>) {
        let Decision { limit, remaining, reset_after, .. } = self.pass(place, now, 0);
        (Decision::refuse(limit, remaining, retry_after, reset_after), None)
    }
}

impl Algorithm for Cycle {
    type State = Used;

    #[inline]
    fn step(&self, state: Option<&Used>, ask: &Ask) -> (Decision, Option<Used>) {
        let (now, units) = (ask.now, ask.cost.unsigned_abs());
        let place = self.place(state, now);
        if ask.cost < 0 {
            let back = self.refunded(place, units, now);
            return (self.pass(back, now, 0), state.map(|_| back.state()));
        }
        if units == 0 {
            return (self.pass(place, now, place.wait(now)), None);
        }
        if units > self.count {
            return self.refuse(place, now, None);
        }
        let next = self.charged(place, units);
        let wait = next.wait(now);
        // It ends at the same moment whenever it is asked for, so no edge on the way changes the retry.
        let late = wait - patience(self.max_wait, ask.max_wait).unwrap_or(0);
        if late > 0 {
            return self.refuse(place, now, Some(late));
        }
        (self.pass(next, now, wait), Some(next.state()))
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let bounds = Bounds { max_period: self.period };
        Self::new(scale_count(self.count, factor, 1), self.period, self.max_wait, &bounds)
    }

    fn describe(&self) -> String {
        let mut text = format!("{{ count: {}, period: {}", self.count, format_duration(self.period));
        if let Some(max_wait) = self.max_wait {
            text.push_str(&format!(", max_wait: {}", format_duration(max_wait)));
        }
        text + " }"
    }

    fn time_base(&self) -> String {
        self.period.to_string()
    }

    fn takes_back(&self) -> TakesBack {
        TakesBack::WithinPeriod(self.period)
    }

    fn window(&self) -> Micros {
        self.period
    }

    fn lua_params(&self) -> Vec<f64> {
        vec![self.count as f64, self.period as f64, self.max_wait.unwrap_or(-1) as f64]
    }
}

impl Words for Used {
    fn words(&self) -> Vec<f64> {
        vec![self.start as f64, self.permits as f64]
    }

    fn from_words(words: &[f64]) -> Option<Self> {
        let [start, permits] = *words else { return None };
        let most = MAX_COUNT as i64;
        Some(Self { start: whole(start, -MAX_WORD, MAX_WORD)?, permits: whole(permits, -most, most)? })
    }
}
