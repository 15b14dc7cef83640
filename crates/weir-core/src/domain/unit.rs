//! The units of time in Envoy's rate-limit protocol and configuration files.

use super::time::{DAY, Micros, SECOND};

/// A unit of time of a fixed length: a month is always 30 days and a year 365.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3,600 s.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days. Weeks since the epoch start on Thursdays.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All units, the shortest first.
    pub const ALL: [Self; 7] = [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the length of the unit.
    pub fn micros(self) -> Micros {
        match self {
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => 3_600 * SECOND,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        }
    }

    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Returns the unit of this name, ignoring case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// Returns the unit of exactly this length.
    pub fn of(length: Micros) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.micros() == length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_name_and_by_length() {
        for unit in Unit::ALL {
            assert_eq!(Unit::named(&unit.name().to_uppercase()), Some(unit));
            assert_eq!(Unit::of(unit.micros()), Some(unit));
        }
        assert_eq!((Unit::named("unknown"), Unit::of(2 * SECOND)), (None, None));
    }
}
