#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, Held, Pace, ParamError, TakesBack, aligned, checked,
    fields::{FieldSet as _, fields},
    kinds::{Flag, Period, Units},
    params::{CHARGES_DENIED, MAX_PERIOD},
};
use crate::domain::{Ask, Decision, Micros};

/// What a window may count up to, so that it stays exact in a double.
const MAX_USED: i64 = 1 << 52;

fields! {
    pub(crate) struct Fields as proto::FixedWindow {
        count: Units,
        period: Period,
        charge_denied: Flag = false,
        per_key_phase: Flag = false,
    }
    examples [
        { count: 10, period: 10s },
        { count: 5, period: 60s },
        { count: 5000, period: 1d },
        { count: 3, period: 1s, charge_denied: true },
        { count: 10, period: 1m, per_key_phase: true },
        { count: 4294967296, period: 31d, charge_denied: true, per_key_phase: true },
        { count: 1, period: 1us },
        { count: 500, period: 31d },
        { count: 400, period: 30d },
    ]
}

/// `count` units in each window of length `period`.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedWindow {
    fields: Fields,
}

type Window = aligned::Window<0, MAX_USED>;

impl FixedWindow {
    /// A limit as Envoy's protocol and its files have them: `count` units, 0 as well, in each window of a `period` from 1 µs
    /// to 366 days, whatever the service's own bound; aligned to the epoch.
    pub fn in_unit(count: u32, period: Micros, charge_denied: bool) -> Self {
        let (count, period) = (count.into(), period.clamp(1, MAX_PERIOD));
        Self { fields: Fields { count, period, charge_denied, per_key_phase: false } }
    }

    /// The time until the window of this phase around `now` ends.
    pub fn until_end(&self, now: Micros, phase: Micros) -> Micros {
        aligned::start(now, self.fields.period, phase) + self.fields.period - now
    }
}

impl Algorithm for FixedWindow {
    type Fields = Fields;
    type State = Window;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        Ok(Self { fields })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Window>, ask: &Ask) -> (Decision, Option<Window>) {
        let Fields { count, period, charge_denied, .. } = self.fields;
        let window = Window::at(state, ask.now, period, ask.phase);
        let left = window.start + period - ask.now;
        let answer = |used: i64, allowed: bool, never: bool| {
            let (remaining, reset) = (count.saturating_sub(used.unsigned_abs()), if used > 0 { left } else { 0 });
            match (allowed, never) {
                (true, _) => Decision::pass(count, remaining, reset),
                (false, true) => Decision::refuse(count, remaining, None, reset),
                (false, false) => Decision::refuse(count, remaining, Some(left), reset),
            }
        };
        let used = window.used + ask.cost;
        if ask.cost < 0 {
            let used = used.max(0);
            return (answer(used, true, false), state.map(|_| Window { used, ..window }));
        }
        let allowed = used.unsigned_abs() <= count;
        let charged = ask.cost > 0 && (allowed || charge_denied);
        let used = if charged { used.min(MAX_USED) } else { window.used };
        (answer(used, allowed, ask.cost.unsigned_abs() > count), charged.then_some(Window { used, ..window }))
    }

    fn holdable(&self) -> Result<Held, &'static str> {
        if self.fields.charge_denied { Err(CHARGES_DENIED) } else { Ok(Held::Exactly) }
    }

    fn charge(&self, state: Option<&Window>, units: u64, now: Micros, phase: Micros) -> Option<Window> {
        let window = Window::at(state, now, self.fields.period, phase);
        Some(Window { used: window.used.saturating_add_unsigned(units).min(MAX_USED), ..window })
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        // None in a unit, which only Envoy's files say, stays none.
        if self.fields.count == 0 {
            return Ok(self.clone());
        }
        checked(self.fields.scaled(factor), &Bounds { max_period: MAX_PERIOD })
    }

    fn time_base(&self) -> String {
        self.fields.period.to_string()
    }

    fn phase_period(&self) -> Option<Micros> {
        self.fields.per_key_phase.then_some(self.fields.period)
    }

    fn takes_back(&self) -> TakesBack {
        TakesBack::WithinPeriod(self.fields.period)
    }

    fn charges_denied(&self) -> bool {
        self.fields.charge_denied
    }

    fn sparing_denied(&self) -> Option<Self> {
        let fields = Fields { charge_denied: false, ..self.fields };
        self.fields.charge_denied.then_some(Self { fields })
    }

    fn pace(&self) -> Option<Pace> {
        let Fields { count, period, per_key_phase, .. } = self.fields;
        Some(Pace::Windowed { count, period, is_on_clock: !per_key_phase })
    }

    fn window(&self) -> Micros {
        self.fields.period
    }
}
