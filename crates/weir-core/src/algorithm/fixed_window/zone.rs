//! Time zones by name, from the compiled-in IANA database. The system's database is never read.

use std::{cmp::Ordering, sync::OnceLock};

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// A time zone: its number among all compiled-in zones, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Zone(u16);

struct Known {
    name: Box<str>,
    /// Parsed on first use.
    rules: OnceLock<TimeZone>,
}

impl Zone {
    /// Returns coordinated universal time.
    pub(super) fn utc() -> Self {
        Self::named("UTC").unwrap_or(Self(0))
    }

    /// Returns the zone of this name, ignoring case.
    pub(super) fn named(name: &str) -> Option<Self> {
        let index = known().binary_search_by(|zone| by_name(&zone.name, name)).ok()?;
        u16::try_from(index).ok().map(Self)
    }

    /// Returns the zone named `city`, or the first whose name ends with `/city`, with spaces for underscores.
    pub(super) fn suggested(city: &str) -> Option<Self> {
        let city = city.replace(' ', "_");
        Self::named(&city).or_else(|| {
            let is_city = |name: &str| name.rsplit_once('/').is_some_and(|(_, end)| end.eq_ignore_ascii_case(&city));
            Self::all().find(|zone| is_city(zone.name()))
        })
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..known().len() as u16).map(Self)
    }

    /// Returns the name as spelled in the database.
    pub(super) fn name(self) -> &'static str {
        known().get(usize::from(self.0)).map_or("UTC", |zone| &zone.name)
    }

    /// Returns the position in the order of names.
    pub(super) fn number(self) -> u16 {
        self.0
    }

    /// Returns the UTC offsets at all times.
    pub(super) fn rules(self) -> &'static TimeZone {
        static UTC: TimeZone = TimeZone::UTC;
        let rules = |zone: &'static Known| {
            zone.rules.get_or_init(|| TimeZoneDatabase::bundled().get(&zone.name).unwrap_or(TimeZone::UTC))
        };
        known().get(usize::from(self.0)).map_or(&UTC, rules)
    }
}

fn known() -> &'static [Known] {
    static KNOWN: OnceLock<Box<[Known]>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let database = TimeZoneDatabase::bundled();
        let known = |name: jiff::tz::TimeZoneName<'_>| Known { name: name.as_str().into(), rules: OnceLock::new() };
        let mut all: Vec<_> = database.available().map(known).collect();
        all.sort_by(|one, other| by_name(&one.name, &other.name));
        all.into()
    })
}

fn by_name(one: &str, other: &str) -> Ordering {
    let lower =
        |name: &str| name.bytes().map(|byte| byte.to_ascii_lowercase()).collect::<smallvec::SmallVec<[u8; 32]>>();
    lower(one).cmp(&lower(other))
}
