#![doc = include_str!("README.md")]

mod calendar;
mod kinds;
#[cfg(test)]
pub(crate) mod spec;
mod zone;

use std::sync::Arc;

use super::{
    Algorithm, Bounds, EDGES, HoldAccuracy, ParamError, RateBound, Spent, UndoRule, aligned,
    fields::{FieldSet as _, fields},
    kinds::{Flag, Units},
    params::{CHARGES_DENIED, MAX_PERIOD},
};
use crate::domain::{
    Decision, Micros, StepInput, Unit,
    time::{DAY, format_duration},
};
pub use calendar::Anchor;
use calendar::Calendar;
use kinds::{AnchorDay, CalendarUnit, OptionalPeriod, ZoneName};
pub use zone::Zone;

/// Maximum count of a window, so that it stays exact in a double.
const MAX_USED: i64 = 1 << 52;

fields! {
    pub(crate) struct Fields as proto::FixedWindow {
        count: Units,
        period: OptionalPeriod = None,
        charge_denied: Flag = false,
        per_key_phase: Flag = false,
        calendar: CalendarUnit = None,
        zone: ZoneName = None,
        anchor: AnchorDay = None,
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
        { count: 50, calendar: day, zone: "Africa/Cairo" },
        { count: 20, calendar: week, zone: "Asia/Tehran", anchor: saturday },
        { count: 1000, calendar: month },
        { count: 300, calendar: month, zone: "Europe/Berlin", anchor: 15 },
        { count: 7, calendar: month, zone: "Pacific/Apia", anchor: 31, charge_denied: true },
        { count: 40, calendar: week, zone: "Europe/London" },
    ]
}

/// `count` units in each window of length `period`, or of a calendar.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedWindow {
    fields: Fields,
    windows: Windows,
}

/// The boundaries of windows.
#[derive(Clone, Debug, PartialEq)]
enum Windows {
    /// At multiples of a period.
    Periodic(Micros),
    /// Windows of a calendar. Shared, so that a scaled limit uses the same cache.
    Calendar(Arc<Calendar>),
}

/// The units used of a window. A calendar window has its end instead of its start: a decision needs no more, and the
/// window runs to the end that clients were given, even if the zone or its rules have changed since.
type Window = aligned::Window<0, MAX_USED>;

impl FixedWindow {
    /// Creates a limit as in Envoy's protocol and files: `count` units, which may be 0, in each window of a `period`
    /// from 1 µs to 366 days, regardless of the service's own bound; aligned to the epoch.
    pub fn in_unit(count: u32, period: Micros, charge_denied: bool) -> Self {
        let period = period.clamp(1, MAX_PERIOD);
        let fields = Fields {
            count: count.into(),
            period: Some(period),
            charge_denied,
            per_key_phase: false,
            calendar: None,
            zone: None,
            anchor: None,
        };
        Self { fields, windows: Windows::Periodic(period) }
    }

    /// Returns the time until the end of the window of this phase around `now`.
    pub fn until_end(&self, now: Micros, phase: Micros) -> Micros {
        self.window_at(None, now, phase).1 - now
    }

    /// Returns the window to count in, and its end.
    #[inline]
    fn window_at(&self, state: Option<&Window>, now: Micros, phase: Micros) -> (Window, Micros) {
        match (&self.windows, state) {
            (Windows::Periodic(period), _) => {
                let window = Window::at(state, now, *period, phase);
                (window, window.start + period)
            }
            (Windows::Calendar(_), Some(state)) if state.used != 0 && state.start > now => (*state, state.start),
            (Windows::Calendar(calendar), _) => {
                let end = calendar.around(now).end;
                (Window { start: end, used: 0 }, end)
            }
        }
    }
}

impl Windows {
    fn new(fields: &Fields, bounds: &Bounds) -> Result<Self, ParamError> {
        let Fields { period, per_key_phase, calendar, zone, anchor, .. } = *fields;
        let wrong = |field, reason: &str| Err(ParamError::new(field, reason));
        let unit = match (period, calendar) {
            (None, None) => return wrong("period", "period or calendar is missing"),
            (Some(_), Some(_)) => return wrong("period", "period cannot be combined with calendar"),
            (Some(_), None) if zone.is_some() => {
                return wrong("zone", "zone requires calendar");
            }
            (Some(_), None) if anchor.is_some() => {
                return wrong("anchor", "anchor requires calendar");
            }
            (Some(period), None) => return Ok(Self::Periodic(period)),
            (None, Some(unit)) => unit,
        };
        if per_key_phase {
            return wrong("per_key_phase", "per_key_phase cannot be combined with calendar");
        }
        if anchor.is_some_and(|anchor| !anchor.is_of(unit)) {
            return wrong(
                "anchor",
                "anchor must be a weekday for windows of a week (monday), a day for those of a month (15), month and day for \
                 those of a year (04-06); days have none",
            );
        }
        if longest(unit) > bounds.max_period {
            let max = format_duration(bounds.max_period);
            return wrong("calendar", &format!("calendar must be a unit of at most {max} (the setting max_period)"));
        }
        Ok(Self::Calendar(Arc::new(Calendar::new(unit, zone.unwrap_or_else(Zone::utc), anchor))))
    }
}

/// Returns the maximum length of a unit, apart from clock changes.
fn longest(unit: Unit) -> Micros {
    match unit {
        Unit::Month => 31 * DAY,
        Unit::Year => 366 * DAY,
        _ => unit.micros(),
    }
}

impl Algorithm for FixedWindow {
    type Fields = Fields;
    type State = Window;

    fn new(fields: Fields, bounds: &Bounds) -> Result<Self, ParamError> {
        Ok(Self { windows: Windows::new(&fields, bounds)?, fields })
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Window>, input: &StepInput) -> (Decision, Option<Window>) {
        let Fields { count, charge_denied, .. } = self.fields;
        let (window, end) = self.window_at(state, input.now, input.phase);
        let left = end - input.now;
        let answer = |used: i64, allowed: bool, never: bool| {
            let (remaining, reset) = (count.saturating_sub(used.unsigned_abs()), if used > 0 { left } else { 0 });
            match (allowed, never) {
                (true, _) => Decision::pass(count, remaining, reset),
                (false, true) => Decision::refuse(count, remaining, None, reset),
                (false, false) => Decision::refuse(count, remaining, Some(left), reset),
            }
        };
        let used = window.used + input.cost;
        if input.cost < 0 {
            let used = used.max(0);
            return (answer(used, true, false), state.map(|_| Window { used, ..window }));
        }
        let allowed = used.unsigned_abs() <= count;
        let charged = input.cost > 0 && (allowed || charge_denied);
        let used = if charged { used.min(MAX_USED) } else { window.used };
        (answer(used, allowed, input.cost.unsigned_abs() > count), charged.then_some(Window { used, ..window }))
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        if self.fields.charge_denied { Err(CHARGES_DENIED) } else { Ok(HoldAccuracy::Exact) }
    }

    fn charge(&self, state: Option<&Window>, Spent { units, .. }: Spent, now: Micros, phase: Micros) -> Option<Window> {
        let (window, _) = self.window_at(state, now, phase);
        Some(Window { used: window.used.saturating_add_unsigned(units).min(MAX_USED), ..window })
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        // A count of 0, which only Envoy's files can have, stays 0.
        if self.fields.count == 0 {
            return Ok(self.clone());
        }
        let fields = self.fields.scaled(factor);
        fields.check(&Bounds { max_period: MAX_PERIOD })?;
        Ok(Self { fields, windows: self.windows.clone() })
    }

    /// For a calendar the unit alone: a window in use runs to its end when its zone or its anchor changes.
    fn time_base(&self) -> String {
        match &self.windows {
            Windows::Periodic(period) => period.to_string(),
            Windows::Calendar(calendar) => calendar.unit().name().to_owned(),
        }
    }

    fn phase_period(&self) -> Option<Micros> {
        self.fields.period.filter(|_| self.fields.per_key_phase)
    }

    fn edges(&self, now: impl FnOnce() -> Micros) -> Option<[Micros; EDGES]> {
        match &self.windows {
            Windows::Periodic(_) => None,
            Windows::Calendar(calendar) => Some(calendar.edges(now())),
        }
    }

    fn undo_rule(&self) -> UndoRule {
        match self.windows {
            Windows::Periodic(period) => UndoRule::WithinPeriod(period),
            Windows::Calendar(_) => UndoRule::WithinWindow,
        }
    }

    fn charges_denied(&self) -> bool {
        self.fields.charge_denied
    }

    fn sparing_denied(&self) -> Option<Self> {
        let fields = Fields { charge_denied: false, ..self.fields };
        self.fields.charge_denied.then(|| Self { fields, windows: self.windows.clone() })
    }

    /// Calendar windows differ in length, so their rate bound is not defined.
    fn rate_bound(&self) -> Option<RateBound> {
        let Fields { count, period, per_key_phase, .. } = self.fields;
        Some(RateBound::Windowed { count, period: period?, is_on_clock: !per_key_phase })
    }

    /// Approximate for a calendar: a month counts as 30 days, a year as 365.
    fn window(&self) -> Micros {
        match &self.windows {
            Windows::Periodic(period) => *period,
            Windows::Calendar(calendar) => calendar.unit().micros(),
        }
    }
}
