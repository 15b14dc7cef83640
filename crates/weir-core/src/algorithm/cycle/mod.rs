#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, HoldAccuracy, ParamError, UndoRule, aligned,
    fields::fields,
    kinds::{Period, Units, Wait},
    params::{MAX_COUNT, SHAPES, accepted_wait},
};
use crate::domain::{Decision, Micros, StepInput};

fields! {
    pub(crate) struct Fields as proto::Cycle {
        count: Units,
        period: Period,
        max_wait: Wait = None,
    }
    examples [
        { count: 10, period: 10s },
        { count: 2, period: 1s, max_wait: 1s },
        { count: 7, period: 1s },
        { count: 3, period: 1m, max_wait: 5m },
        { count: 30, period: 1m, max_wait: 0s },
        { count: 1, period: 1us },
        { count: 4294967296, period: 83ms },
        { count: 4294967296, period: 31d },
        { count: 500, period: 31d },
        { count: 400, period: 30d },
    ]
}

/// `count` permits in each cycle of length `period`, which may be reserved ahead.
#[derive(Clone, Debug, PartialEq)]
pub struct Cycle {
    fields: Fields,
}

/// The latest cycle in which permits are reserved. `used` is below 0 if the cycle had not started
/// yet: then all permits of the cycles before it are taken.
type Used = aligned::Window<{ -(MAX_COUNT as i64) }, { MAX_COUNT as i64 }>;

/// A state at some moment.
#[derive(Clone, Copy)]
struct Latest {
    start: Micros,
    used: u64,
    has_started: bool,
}

impl Latest {
    fn state(self) -> Used {
        let used = self.used as i64;
        Used { start: self.start, used: if self.has_started { used } else { -used } }
    }

    /// Returns the time until the cycle starts.
    fn wait(self, now: Micros) -> Micros {
        if self.has_started { 0 } else { self.start - now }
    }
}

impl Cycle {
    /// Returns the latest cycle with used permits. One that had started stays the current cycle
    /// until its end, even if the clock has stepped back before it.
    fn latest(&self, state: Option<&Used>, now: Micros) -> Latest {
        let Used { start, used } = Used::at(state, now, self.fields.period, 0);
        Latest { start, used: used.unsigned_abs(), has_started: used > 0 || start <= now }
    }

    /// Returns the permits left in the latest cycle.
    fn left(&self, latest: Latest) -> u64 {
        self.fields.count.saturating_sub(latest.used)
    }

    /// Charges at most a cycle's permits: first those left in the latest cycle, then the first ones of the next.
    fn charged(&self, latest: Latest, units: u64) -> Latest {
        match units.checked_sub(self.left(latest)) {
            Some(used) if used > 0 => Latest { start: latest.start + self.fields.period, used, has_started: false },
            _ => Latest { used: latest.used + units, ..latest },
        }
    }

    /// Refunds from the latest permits back, at most until the current cycle is full.
    fn refunded(&self, latest: Latest, units: u64, now: Micros) -> Latest {
        if units < latest.used || latest.has_started {
            return Latest { used: latest.used.saturating_sub(units), ..latest };
        }
        let start = aligned::start(now, self.fields.period, 0);
        let units = units - latest.used;
        let cycles = units / self.fields.count + 1;
        if cycles > ((latest.start - start) / self.fields.period).unsigned_abs() {
            return Latest { start, used: 0, has_started: true };
        }
        let back = latest.start - cycles as i64 * self.fields.period;
        Latest { start: back, used: self.fields.count - units % self.fields.count, has_started: back == start }
    }

    fn pass(&self, latest: Latest, now: Micros, wait: Micros) -> Decision {
        let remaining = if latest.has_started { self.left(latest) } else { 0 };
        let reset_after = if latest.used > 0 { latest.start + self.fields.period - now } else { 0 };
        Decision { wait, ..Decision::pass(self.fields.count, remaining, reset_after) }
    }

    fn refuse(&self, latest: Latest, now: Micros, retry_after: Option<Micros>) -> (Decision, Option<Used>) {
        let Decision { limit, remaining, reset_after, .. } = self.pass(latest, now, 0);
        (Decision::refuse(limit, remaining, retry_after, reset_after), None)
    }
}

impl Algorithm for Cycle {
    type Fields = Fields;
    type State = Used;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        Ok(Self { fields })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Used>, input: &StepInput) -> (Decision, Option<Used>) {
        let (now, units) = (input.now, input.cost.unsigned_abs());
        let latest = self.latest(state, now);
        if input.cost < 0 {
            let back = self.refunded(latest, units, now);
            return (self.pass(back, now, 0), state.map(|_| back.state()));
        }
        if units == 0 {
            return (self.pass(latest, now, latest.wait(now)), None);
        }
        if units > self.fields.count {
            return self.refuse(latest, now, None);
        }
        let next = self.charged(latest, units);
        let wait = next.wait(now);
        // The wait ends at the same time whenever it is requested, so no cycle edge before that changes the retry.
        let late = wait - accepted_wait(self.fields.max_wait, input.max_wait).unwrap_or(0);
        if late > 0 {
            return self.refuse(latest, now, Some(late));
        }
        (self.pass(next, now, wait), Some(next.state()))
    }

    fn next_after(&self, state: Option<&Used>, input: &StepInput, _: &Decision) -> Option<Micros> {
        let latest = self.latest(state, input.now);
        let begins = if self.left(latest) > 0 { latest.start } else { latest.start + self.fields.period };
        Some(begins - input.now)
    }

    fn time_base(&self) -> String {
        self.fields.period.to_string()
    }

    fn undo_rule(&self) -> UndoRule {
        UndoRule::WithinPeriod(self.fields.period)
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        Err(SHAPES)
    }

    fn window(&self) -> Micros {
        self.fields.period
    }
}
