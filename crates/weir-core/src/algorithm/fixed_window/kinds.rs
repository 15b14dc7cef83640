//! The kinds of a calendar's parameters, in files and messages.

use super::{Anchor, Zone};
use crate::{
    algorithm::{
        Bounds, Form,
        kinds::{Kind, Period},
    },
    domain::{Micros, Unit},
};
#[cfg(feature = "proto")]
use crate::{
    algorithm::{ParamError, message::Holds},
    proto,
};

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// Maximum number of days of each month.
const MONTHS: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// An optional period.
pub(crate) enum OptionalPeriod {}

impl Kind for OptionalPeriod {
    type Value = Option<Micros>;

    const FORM: Form = Period::FORM;

    fn read(text: &str) -> Result<Self::Value, String> {
        Period::read(text).map(Some)
    }

    fn write(value: Self::Value) -> String {
        value.map_or_else(String::new, Period::write)
    }

    /// 0 for none.
    fn number(value: Self::Value) -> f64 {
        value.map_or(0.0, Period::number)
    }

    fn beyond(value: Self::Value, bounds: &Bounds) -> Option<String> {
        value.and_then(|period| Period::beyond(period, bounds))
    }
}

/// The calendar unit of a window.
pub(crate) enum CalendarUnit {}

impl CalendarUnit {
    const NAMES: &'static [&'static str] = &["day", "week", "month", "year"];
    const ALL: [Unit; 4] = [Unit::Day, Unit::Week, Unit::Month, Unit::Year];
}

impl Kind for CalendarUnit {
    type Value = Option<Unit>;

    const FORM: Form = Form::Choice(Self::NAMES);

    fn read(text: &str) -> Result<Self::Value, String> {
        let unit = Self::ALL.into_iter().find(|unit| unit.name() == text);
        unit.map(Some).ok_or_else(|| format!(" must be {}, not `{text}`", Self::NAMES.join(", ")))
    }

    fn write(value: Self::Value) -> String {
        value.map_or("", Unit::name).to_owned()
    }

    fn number(value: Self::Value) -> f64 {
        value.map_or(-1.0, |unit| f64::from(unit as u8))
    }
}

pub(crate) enum ZoneName {}

impl Kind for ZoneName {
    type Value = Option<Zone>;

    const FORM: Form = Form::Name;

    fn read(text: &str) -> Result<Self::Value, String> {
        Zone::named(text).map(Some).ok_or_else(|| {
            let like = Zone::suggested(text).map_or("Europe/Berlin", Zone::name);
            format!(" must be a name of the IANA time zone database such as {like}, not `{text}`")
        })
    }

    fn write(value: Self::Value) -> String {
        value.map_or("", Zone::name).to_owned()
    }

    fn number(value: Self::Value) -> f64 {
        value.map_or(-1.0, |zone| f64::from(zone.number()))
    }
}

/// The day on which windows start.
pub(crate) enum AnchorDay {}

impl AnchorDay {
    /// Parses `MM-DD`.
    fn date(text: &str) -> Option<Anchor> {
        let two = |text: &str| if text.len() == 2 { text.parse::<u8>().ok() } else { None };
        let (month, day) = text.split_once('-')?;
        let (month, day) = (two(month)?, two(day)?);
        let max = MONTHS.get(usize::from(month).checked_sub(1)?)?;
        (1..=*max).contains(&day).then_some(Anchor::Date(month, day))
    }
}

impl Kind for AnchorDay {
    type Value = Option<Anchor>;

    const FORM: Form = Form::Day;

    fn read(text: &str) -> Result<Self::Value, String> {
        let weekday = || WEEKDAYS.iter().position(|name| *name == text).map(|day| Anchor::Weekday(day as u8));
        let day = || text.parse().ok().filter(|day| (1..=31).contains(day)).map(Anchor::Day);
        weekday().or_else(day).or_else(|| Self::date(text)).map(Some).ok_or_else(|| {
            format!(" must be a weekday (monday), a day of the month (1 to 31) or of the year (04-06), not `{text}`")
        })
    }

    fn write(value: Self::Value) -> String {
        match value {
            None => String::new(),
            Some(Anchor::Weekday(day)) => WEEKDAYS[usize::from(day)].to_owned(),
            Some(Anchor::Day(day)) => day.to_string(),
            Some(Anchor::Date(month, day)) => format!("{month:02}-{day:02}"),
        }
    }

    fn number(value: Self::Value) -> f64 {
        let number = |anchor| match anchor {
            Anchor::Weekday(day) | Anchor::Day(day) => day.into(),
            Anchor::Date(month, day) => u16::from(month) * 100 + u16::from(day),
        };
        value.map_or(-1.0, |anchor| f64::from(number(anchor)))
    }
}

#[cfg(feature = "proto")]
impl Holds<Option<Unit>> for i32 {
    fn value(&self, field: &str) -> Result<Option<Option<Unit>>, ParamError> {
        match proto::Calendar::try_from(*self) {
            Ok(proto::Calendar::Unspecified) => Ok(None),
            Ok(proto::Calendar::Day) => Ok(Some(Some(Unit::Day))),
            Ok(proto::Calendar::Week) => Ok(Some(Some(Unit::Week))),
            Ok(proto::Calendar::Month) => Ok(Some(Some(Unit::Month))),
            Ok(proto::Calendar::Year) => Ok(Some(Some(Unit::Year))),
            Err(_) => Err(ParamError::new(field, format!("unknown {field} {self}"))),
        }
    }
}

#[cfg(feature = "proto")]
impl Holds<Option<Zone>> for Option<String> {
    fn value(&self, field: &str) -> Result<Option<Option<Zone>>, ParamError> {
        text::<ZoneName>(self.as_deref(), field)
    }
}

#[cfg(feature = "proto")]
impl Holds<Option<Anchor>> for Option<String> {
    fn value(&self, field: &str) -> Result<Option<Option<Anchor>>, ParamError> {
        text::<AnchorDay>(self.as_deref(), field)
    }
}

/// Parses a text of a message, which is written as in a file.
#[cfg(feature = "proto")]
fn text<K: Kind>(text: Option<&str>, field: &str) -> Result<Option<K::Value>, ParamError> {
    let read = |text| K::read(text).map_err(|reason| ParamError::new(field, format!("{field}{reason}")));
    text.map(read).transpose()
}
