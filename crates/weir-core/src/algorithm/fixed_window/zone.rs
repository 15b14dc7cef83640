//! Time zones by name, from the IANA database that is compiled in: never the system's, so that nothing is read at run time.

use std::{cmp::Ordering, sync::OnceLock};

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// A time zone: its number among all that are compiled in, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Zone(u16);

struct Known {
    name: Box<str>,
    /// Parsed when it is first asked for.
    rules: OnceLock<TimeZone>,
}

impl Zone {
    /// Coordinated universal time.
    pub(super) fn utc() -> Self {
        Self::named("UTC").unwrap_or(Self(0))
    }

    /// The zone of this name, in whatever case.
    pub(super) fn named(name: &str) -> Option<Self> {
        let place = known().binary_search_by(|zone| by_name(&zone.name, name)).ok()?;
        u16::try_from(place).ok().map(Self)
    }

    /// The zone whose name ends with `/city`, or is written with spaces.
    pub(super) fn suggested(city: &str) -> Option<Self> {
        let city = city.replace(' ', "_");
        Self::named(&city).or_else(|| {
            let is_city = |name: &str| name.rsplit_once('/').is_some_and(|(_, end)| end.eq_ignore_ascii_case(&city));
            Self::all().find(|zone| is_city(zone.name()))
        })
    }

    /// Every zone.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..known().len() as u16).map(Self)
    }

    /// Its name, as the database spells it.
    pub(super) fn name(self) -> &'static str {
        known().get(usize::from(self.0)).map_or("UTC", |zone| &zone.name)
    }

    /// Its place in the order of names.
    pub(super) fn number(self) -> u16 {
        self.0
    }

    /// Its offsets at every time.
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
