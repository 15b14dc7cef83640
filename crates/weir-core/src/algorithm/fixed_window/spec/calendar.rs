//! Windows of a calendar, compared with the arithmetic of jiff, which has the zones.

use jiff::{
    Timestamp, ToSpan as _,
    civil::{Date, DateTime, Weekday, date},
    tz::{TimeZone, TimeZoneDatabase},
};

use super::super::{
    Anchor, FixedWindow, Windows,
    calendar::{Between, Calendar},
    zone::Zone,
};
use crate::{
    algorithm::{
        Algorithm as _, EDGES, Params, find,
        properties::check::{Key, S, error, never, parse, pass, refuse},
    },
    domain::{Micros, StepInput, Unit, time::DAY},
    testing::{Random, cases},
};

const HOUR: Micros = 3_600 * S;

fn calendar(params: &Params) -> &Calendar {
    match params {
        Params::FixedWindow(FixedWindow { windows: Windows::Calendar(calendar), .. }) => calendar,
        other => panic!("{other:?} has no calendar"),
    }
}

/// Returns the moment at which a clock in this zone shows `shown`.
fn at(zone: &str, shown: DateTime) -> Micros {
    shown.to_zoned(TimeZoneDatabase::bundled().get(zone).unwrap()).unwrap().timestamp().as_microsecond()
}

/// Returns the date on which the window around a day started, or would have started.
fn start_of(unit: Unit, anchor: Anchor, day: Date) -> Date {
    let clamped = |first: Date, day: u8| first.with().day(first.days_in_month().min(day as i8)).build().unwrap();
    match anchor {
        _ if unit == Unit::Day => day,
        Anchor::Weekday(weekday) => {
            let from = Weekday::from_monday_zero_offset(weekday as i8).unwrap();
            day.checked_sub(i64::from(day.weekday().since(from)).days()).unwrap()
        }
        Anchor::Day(number) => {
            let own = clamped(day.first_of_month(), number);
            if own <= day { own } else { clamped(day.first_of_month().yesterday().unwrap().first_of_month(), number) }
        }
        Anchor::Date(month, number) => {
            let own = |year| clamped(date(year, month as i8, 1), number);
            if own(day.year()) <= day { own(day.year()) } else { own(day.year() - 1) }
        }
    }
}

/// Returns the date on which the next window starts.
fn next(unit: Unit, anchor: Anchor, started: Date) -> Date {
    let clamped = |first: Date, day: u8| first.with().day(first.days_in_month().min(day as i8)).build().unwrap();
    match anchor {
        _ if unit == Unit::Day => started.tomorrow().unwrap(),
        Anchor::Weekday(_) => started.checked_add(1.week()).unwrap(),
        Anchor::Day(number) => clamped(started.last_of_month().tomorrow().unwrap(), number),
        Anchor::Date(month, number) => clamped(date(started.year() + 1, month as i8, 1), number),
    }
}

fn first_moment(day: Date, zone: &TimeZone) -> Micros {
    day.to_zoned(zone.clone()).unwrap().start_of_day().unwrap().timestamp().as_microsecond()
}

fn any_anchor(unit: Unit, random: &mut Random) -> Anchor {
    match unit {
        Unit::Week => Anchor::Weekday(random.below(7) as u8),
        Unit::Month => Anchor::Day(random.within(1, 31) as u8),
        _ => {
            let month = random.within(1, 12);
            Anchor::Date(month as u8, random.within(1, date(2000, month as i8, 1).days_in_month().into()) as u8)
        }
    }
}

/// Every zone, over 400 years, after which the calendar repeats itself: at random moments, and at changes of
/// the offset.
#[test]
fn windows_are_those_of_the_calendar_in_every_zone() {
    let units = [Unit::Day, Unit::Week, Unit::Month, Unit::Year];
    let (from, to) = (date(1850, 1, 1).at(0, 0, 0, 0), date(2250, 1, 1).at(0, 0, 0, 0));
    let [from, to] = [from, to].map(|end| end.to_zoned(TimeZone::UTC).unwrap().timestamp().as_microsecond());
    let (mut zones, mut odd) = (0, 0);
    cases(1, |random| {
        for zone in Zone::all() {
            let rules = TimeZoneDatabase::bundled().get(zone.name()).unwrap();
            let mut random = random.fork(zone.number().into());
            let changes = rules.preceding(Timestamp::from_microsecond(to).unwrap());
            let changes: Vec<_> = changes.map(|change| change.timestamp().as_microsecond()).take(300).collect();
            let near = |random: &mut Random| match changes.len() {
                0 => None,
                count => Some(changes[random.below(count)] + random.pick(&[-DAY, -HOUR, -1, 0, 1, HOUR, DAY])),
            };
            for unit in units {
                let anchor = any_anchor(unit, &mut random);
                let calendar = Calendar::new(unit, zone, (unit != Unit::Day).then_some(anchor));
                for _ in 0..60 {
                    let now = near(&mut random).filter(|now| *now > from && random.clone().once_in(2));
                    let now = now.unwrap_or_else(|| random.within(from, to));
                    odd += u32::from(assert_window(&calendar, &rules, (unit, anchor), now));
                }
            }
            zones += 1;
        }
    });
    assert!(zones >= 590, "{zones} zones");
    assert!(odd > 1_000, "{odd} windows were of another length than 24 hours a day");
}

/// Panics unless the window matches the calendar. Returns whether it has days of other than 24
/// hours.
fn assert_window(calendar: &Calendar, rules: &TimeZone, (unit, anchor): (Unit, Anchor), now: Micros) -> bool {
    let window = calendar.around(now);
    let context = || format!("{window:?} around {now} in {rules:?}: {calendar:?}");
    assert!(window.start <= now && now < window.end, "{}", context());
    let day = Timestamp::from_microsecond(now).unwrap().to_zoned(rules.clone()).date();
    // A clock that was set back over midnight shows the previous day again.
    let candidates = [day.yesterday().unwrap(), day, day.tomorrow().unwrap()];
    let mut expected = candidates.into_iter().map(|day| {
        let mut started = start_of(unit, anchor, day);
        let start = first_moment(started, rules);
        // A skipped day has no window.
        while first_moment(next(unit, anchor, started), rules) == start {
            started = next(unit, anchor, started);
        }
        Between { start, end: first_moment(next(unit, anchor, started), rules) }
    });
    assert!(expected.any(|own| own == window), "{}", context());
    let edges = calendar.edges(now);
    assert_eq!((edges[2], edges[3]), (window.start, window.end), "{}", context());
    assert!(edges.is_sorted_by(|one, next| one < next), "{edges:?} {}", context());
    for pair in edges.windows(2) {
        assert_eq!(calendar.around(pair[0]), Between { start: pair[0], end: pair[1] }, "{}", context());
        assert_eq!(calendar.around(pair[1] - 1), Between { start: pair[0], end: pair[1] }, "{}", context());
    }
    assert_eq!(calendar.around(now), window, "another one when it is kept: {}", context());
    (window.end - window.start) % DAY != 0
}

#[test]
fn a_window_that_is_not_kept_is_found_again() {
    let params = parse("fixed_window", &[("count", "1"), ("calendar", "day"), ("zone", "Africa/Cairo")]);
    cases(200, |random| {
        let now = random.clone().within(0, 1 << 52);
        let fresh = parse("fixed_window", &[("count", "1"), ("calendar", "day"), ("zone", "Africa/Cairo")]);
        assert_eq!(calendar(&params).edges(now), calendar(&fresh).edges(now), "{now}");
    });
    assert_eq!(calendar(&params).edges(0).len(), EDGES);
}

#[test]
fn a_billing_month_in_berlin_ends_on_its_day_whatever_the_clocks_do() {
    let berlin = |month, day, hour| at("Europe/Berlin", date(2026, month, day).at(hour, 0, 0, 0));
    let left = berlin(4, 15, 0) - berlin(3, 15, 0);
    assert_eq!(left, 31 * DAY - HOUR, "the clocks went on");
    let params =
        parse("fixed_window", &[("count", "5"), ("calendar", "month"), ("zone", "Europe/Berlin"), ("anchor", "15")]);
    let mut key = Key::new();
    for (now, cost, expected) in [
        (berlin(3, 14, 23), 5, pass(5, 0, HOUR)),
        (berlin(3, 15, 0) - 1, 1, refuse(5, 0, 1, 1)),
        (berlin(3, 15, 0), 5, pass(5, 0, left)),
        (berlin(4, 14, 23), 1, refuse(5, 0, HOUR, HOUR)),
        (berlin(4, 14, 23), 6, never(5, 0, HOUR)),
        // The clock steps back: the known window stays.
        (berlin(3, 14, 23), 1, refuse(5, 0, left + HOUR, left + HOUR)),
        (berlin(4, 15, 0), -1, pass(5, 5, 0)),
    ] {
        assert_eq!(key.decide(&params, now, cost), expected, "{now}");
    }
}

#[test]
fn anchors_are_clamped_in_short_months() {
    let params = parse("fixed_window", &[("count", "1"), ("calendar", "month"), ("anchor", "31")]);
    let utc = |year, month, day| at("UTC", date(year, month, day).at(0, 0, 0, 0));
    let around = |now| calendar(&params).around(now);
    assert_eq!(around(utc(2027, 2, 27)), Between { start: utc(2027, 1, 31), end: utc(2027, 2, 28) });
    assert_eq!(around(utc(2027, 2, 28)), Between { start: utc(2027, 2, 28), end: utc(2027, 3, 31) });
    assert_eq!(around(utc(2028, 2, 28)), Between { start: utc(2028, 1, 31), end: utc(2028, 2, 29) });
    let leap = parse("fixed_window", &[("count", "1"), ("calendar", "year"), ("anchor", "02-29")]);
    let start =
        |year, day| Between { start: utc(year, 2, day), end: utc(year + 1, 2, if year == 2027 { 29 } else { 28 }) };
    assert_eq!(calendar(&leap).around(utc(2027, 3, 1)), start(2027, 28));
    assert_eq!(calendar(&leap).around(utc(2028, 2, 29)), start(2028, 29));
}

#[test]
fn a_skipped_midnight_and_a_skipped_day_have_no_window_of_their_own() {
    let cairo = parse("fixed_window", &[("count", "1"), ("calendar", "day"), ("zone", "Africa/Cairo")]);
    let one = |day, hour| at("Africa/Cairo", date(2026, 4, day).at(hour, 0, 0, 0));
    assert_eq!(calendar(&cairo).around(one(24, 12)), Between { start: one(24, 1), end: one(25, 0) });
    assert_eq!(one(25, 0) - one(24, 1), 23 * HOUR);
    let apia = parse("fixed_window", &[("count", "1"), ("calendar", "day"), ("zone", "Pacific/Apia")]);
    let first = |day| at("Pacific/Apia", date(2011, 12, day).at(0, 0, 0, 0));
    assert_eq!(calendar(&apia).around(first(29)), Between { start: first(29), end: first(31) });
    assert_eq!(first(31) - first(29), DAY);
}

/// The end is in the state, so the reset time that a client was given stays valid.
#[test]
fn a_window_in_use_keeps_its_end_when_zone_and_anchor_change() {
    let with = |zone, anchor| {
        parse("fixed_window", &[("count", "10"), ("calendar", "month"), ("zone", zone), ("anchor", anchor)])
    };
    let (before, after) = (with("Europe/Berlin", "15"), with("America/New_York", "1"));
    assert_eq!(before.time_base(), after.time_base());
    let now = at("UTC", date(2026, 11, 23).at(0, 0, 0, 0));
    let end = at("Europe/Berlin", date(2026, 12, 15).at(0, 0, 0, 0));
    let mut key = Key::new();
    assert_eq!(key.decide(&before, now, 4), pass(10, 6, end - now));
    assert_eq!(key.decide(&after, now, 6), pass(10, 0, end - now));
    assert_eq!(key.decide(&after, now, 1), refuse(10, 0, end - now, end - now));
    let next = at("America/New_York", date(2027, 1, 1).at(0, 0, 0, 0));
    assert_eq!(key.decide(&after, end, 1), pass(10, 9, next - end));
}

#[test]
fn days_and_months_and_periods_have_counts_of_their_own() {
    let base = |fields: &[(&str, &str)]| parse("fixed_window", &[&[("count", "1")], fields].concat()).time_base();
    assert_eq!(base(&[("calendar", "month")]), "month");
    assert_eq!(base(&[("calendar", "day"), ("zone", "Asia/Tokyo")]), "day");
    assert_eq!(base(&[("period", "1d")]), DAY.to_string());
}

/// The edges that a replica sends include the store's own window, within the allowed clock skew.
#[test]
fn edges_reach_a_day_and_a_reservation_beyond_a_callers_clock() {
    cases(100, |random| {
        for example in find("fixed_window").unwrap().examples {
            let params = parse("fixed_window", example);
            let now = random.clone().within(0, 1 << 52);
            let Some(edges) = params.edges(|| now) else { continue };
            let (first, last) = (edges[0], edges[EDGES - 1]);
            assert!(first <= now - DAY && now + 2 * DAY < last, "{params:?} {now} {edges:?}");
        }
    });
}

#[test]
fn a_scaled_limit_has_the_windows_of_its_own() {
    let params = parse("fixed_window", &[("count", "10"), ("calendar", "week"), ("anchor", "sunday")]);
    let scaled = params.scale(0.5).unwrap();
    assert_eq!(scaled.describe(), "{ count: 20, calendar: week, anchor: sunday }");
    assert!(std::ptr::eq(calendar(&params), calendar(&scaled)));
    let Params::FixedWindow(own) = &scaled else { panic!("{scaled:?}") };
    let input = StepInput { now: 0, cost: 20, max_wait: None, phase: 0 };
    assert!(own.step(None, &input).0.allowed);
}

#[test]
fn invalid_calendars_are_rejected() {
    let wrong = |fields: &[(&str, &str)]| {
        let error = error("fixed_window", &[&[("count", "1")], fields].concat());
        (error.field, error.reason)
    };
    let field = |fields: &[(&str, &str)]| wrong(fields).0;
    assert_eq!(field(&[]), "period");
    assert_eq!(field(&[("period", "1d"), ("calendar", "day")]), "period");
    assert_eq!(field(&[("period", "1d"), ("zone", "UTC")]), "zone");
    assert_eq!(field(&[("period", "1d"), ("anchor", "1")]), "anchor");
    assert_eq!(field(&[("calendar", "hour")]), "calendar");
    assert_eq!(field(&[("calendar", "day"), ("per_key_phase", "true")]), "per_key_phase");
    for (unit, anchor) in [("day", "1"), ("week", "1"), ("month", "monday"), ("month", "04-06"), ("year", "6")] {
        assert_eq!(field(&[("calendar", unit), ("anchor", anchor)]), "anchor", "{unit} {anchor}");
    }
    for anchor in ["0", "32", "Monday", "13-01", "04-31", "02-30", "4-6", "00-01", "01-00", ""] {
        assert_eq!(field(&[("calendar", "month"), ("anchor", anchor)]), "anchor", "{anchor}");
    }
    let zone = |name| wrong(&[("calendar", "day"), ("zone", name)]);
    assert!(zone("Berlin").1.contains("such as Europe/Berlin, not `Berlin`"), "{:?}", zone("Berlin"));
    assert!(zone("new york").1.contains("America/New_York"), "{:?}", zone("new york"));
    assert_eq!(zone("").0, "zone");
    assert_eq!(wrong(&[("calendar", "year")]).1, "calendar must be a unit of at most 31d (the setting max_period)");
}
