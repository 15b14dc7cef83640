//! The windows of a calendar: days, weeks, months and years in a time zone, with its daylight saving time.
//!
//! A window starts at the first moment of its day: midnight or, if the clocks skip midnight, the
//! moment to which they are set. It ends where the next one starts, so a day may have 23 or 25
//! hours. A day that a zone skipped has no window.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use jiff::{
    Timestamp, ToSpan as _,
    civil::{Date, date},
};

use super::zone::Zone;
use crate::{
    algorithm::{EDGES, state::MAX_WHOLE},
    domain::{
        Micros, Unit,
        time::{DAY, SECOND},
    },
};

/// The day on which windows start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// A day of the week, from 0 for Monday.
    Weekday(u8),
    /// A day of the month, 1 to 31, or the last one of a shorter month.
    Day(u8),
    /// A day of the year: month and day. The 29th of February is the 28th in common years.
    Date(u8, u8),
}

impl Anchor {
    /// Returns the default anchor; `None` if the unit has no anchor.
    pub(super) fn usual(unit: Unit) -> Option<Self> {
        match unit {
            Unit::Week => Some(Self::Weekday(0)),
            Unit::Month => Some(Self::Day(1)),
            Unit::Year => Some(Self::Date(1, 1)),
            _ => None,
        }
    }

    /// Whether windows of this unit can start on this anchor.
    pub(super) fn is_of(self, unit: Unit) -> bool {
        Self::usual(unit).is_some_and(|usual| std::mem::discriminant(&usual) == std::mem::discriminant(&self))
    }
}

/// A window, from its first moment to the first of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Between {
    pub start: Micros,
    pub end: Micros,
}

/// The windows of one limit. The most recently used ones are cached, so that a decision does no calendar arithmetic.
#[derive(Debug)]
pub(super) struct Calendar {
    unit: Unit,
    zone: Zone,
    anchor: Option<Anchor>,
    /// Cached windows, at their number modulo the length. Each is one word, so that reads are never torn.
    kept: [AtomicU64; EDGES + 1],
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.unit, self.zone, self.anchor) == (other.unit, other.zone, other.anchor)
    }
}

impl Calendar {
    /// Creates windows of this unit, [`Unit::Day`] or longer, which start on the anchor.
    pub(super) fn new(unit: Unit, zone: Zone, anchor: Option<Anchor>) -> Self {
        Self { unit, zone, anchor: anchor.or(Anchor::usual(unit)), kept: Default::default() }
    }

    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the window around `now`.
    #[inline]
    pub(super) fn around(&self, now: Micros) -> Between {
        let mut kept = self.kept.iter().filter_map(|word| unpacked(word.load(Relaxed)));
        kept.find(|window| window.start <= now && now < window.end).unwrap_or_else(|| self.find(now))
    }

    /// Returns the edges of the window around `now`, of two windows before it and of three after it.
    pub(super) fn edges(&self, now: Micros) -> [Micros; EDGES] {
        let mut edges = [0; EDGES];
        edges[1] = self.around(self.around(now).start - 1).start;
        edges[0] = self.around(edges[1] - 1).start;
        for index in 2..EDGES {
            edges[index] = self.around(edges[index - 1]).end;
        }
        edges
    }

    #[cold]
    fn find(&self, now: Micros) -> Between {
        let now = now.clamp(-MAX_WHOLE, MAX_WHOLE);
        let mut number = self.number_near(now);
        // The anchor may be later in the month, and after clocks were set back they may show the previous day again.
        while self.begins(number + 1) <= now {
            number += 1;
        }
        while self.begins(number) > now {
            number -= 1;
        }
        let window = Between { start: self.begins(number), end: self.begins(number + 1) };
        let slot = number.rem_euclid(self.kept.len() as i64) as usize;
        self.kept[slot].store(packed(window), Relaxed);
        window
    }

    /// Returns the number of the window around `now`, or a neighboring one. Days and weeks are counted from 1970,
    /// months and years from the year 0.
    fn number_near(&self, now: Micros) -> i64 {
        let offset = self.zone.rules().to_offset(timestamp(now));
        let today = (now + i64::from(offset.seconds()) * SECOND).div_euclid(DAY);
        let civil = || offset.to_datetime(timestamp(now)).date();
        match self.unit {
            Unit::Year => civil().year().into(),
            Unit::Month => i64::from(civil().year()) * 12 + i64::from(civil().month()) - 1,
            Unit::Week => (today - self.first_week()).div_euclid(7),
            _ => today,
        }
    }

    /// Returns the first moment of a window.
    fn begins(&self, number: i64) -> Micros {
        let in_month = |year: i64, month: i64, day: u8| {
            let first = date(year as i16, month as i8, 1);
            first.with().day(first.days_in_month().min(day as i8)).build().unwrap_or(first)
        };
        let first = match (self.unit, self.anchor) {
            (Unit::Year, Some(Anchor::Date(month, day))) => in_month(number, month.into(), day),
            (Unit::Month, Some(Anchor::Day(day))) => in_month(number.div_euclid(12), number.rem_euclid(12) + 1, day),
            (Unit::Week, _) => day(number * 7 + self.first_week()),
            _ => day(number),
        };
        let begins = self.zone.rules().to_timestamp(first.at(0, 0, 0, 0));
        begins.unwrap_or(Timestamp::MAX).as_microsecond()
    }

    /// Returns the day on which the first week starts: the 29th of December 1969 was a Monday.
    fn first_week(&self) -> i64 {
        let Some(Anchor::Weekday(weekday)) = self.anchor else { return -3 };
        i64::from(weekday) - 3
    }
}

/// Returns the moment as a timestamp, which exists for every moment that a double holds.
fn timestamp(now: Micros) -> Timestamp {
    Timestamp::from_microsecond(now).unwrap_or_default()
}

/// Returns the date `number` days after the 1st of January 1970.
fn day(number: i64) -> Date {
    date(1970, 1, 1).checked_add(number.days()).unwrap_or(Date::MAX)
}

/// Bits of a window's length in seconds; a year needs 25.
const LENGTH_BITS: u32 = 28;
/// Offset that makes the start in seconds positive: 2^53 µs are less than 2^34 s.
const START_OFFSET: i64 = 1 << 34;

/// Encodes a window in one word. UTC offsets are whole seconds, and so are windows.
fn packed(window: Between) -> u64 {
    let start = (window.start.div_euclid(SECOND) + START_OFFSET).unsigned_abs();
    start << LENGTH_BITS | ((window.end - window.start) / SECOND).unsigned_abs()
}

/// Decodes a window; `None` for a word that was never written.
#[inline]
fn unpacked(word: u64) -> Option<Between> {
    let start = ((word >> LENGTH_BITS) as i64 - START_OFFSET) * SECOND;
    let length = (word & ((1 << LENGTH_BITS) - 1)) as i64 * SECOND;
    (length > 0).then_some(Between { start, end: start + length })
}
