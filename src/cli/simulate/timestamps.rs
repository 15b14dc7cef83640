//! Times in the formats of logs, and their text form.

use time::{
    OffsetDateTime,
    format_description::{BorrowedFormatItem, well_known::Rfc3339},
    macros::format_description,
};
use weir_core::domain::{
    Micros,
    time::{MAX_MOMENT, SECOND},
};

use crate::cli::render::human_duration;

/// The time format of nginx and Apache: `10/Oct/2000:13:55:36 -0700`.
const COMMON: &[BorrowedFormatItem<'_>] = format_description!(
    version = 2,
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
);

/// Length of an ISO 8601 time before the fraction or the offset: `2000-10-10T13:55:36`.
const ISO_SECONDS: usize = 19;

/// From this time on (September 2001) a time counts as one since the Unix epoch, and is shown as a date.
const DATES_FROM: Micros = 1_000_000_000 * SECOND;

/// The units of times since the Unix epoch, distinguished by their size: the upper bound of each, exclusive, and its
/// number in a second.
const EPOCHS: [(i128, i128); 4] = [
    (100_000_000_000, 1),
    (100_000_000_000_000, 1_000),
    (100_000_000_000_000_000, 1_000_000),
    (i128::MAX, 1_000_000_000),
];

/// The time of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub at: Micros,
    /// Whether the log has whole seconds only.
    pub is_whole_second: bool,
}

impl Timestamp {
    /// Parses the time of a log line: the common log format, ISO 8601 (UTC without an offset), or a number since the
    /// Unix epoch: seconds, milliseconds, microseconds or nanoseconds, distinguished by its size.
    ///
    /// # Errors
    /// A message, for any other text and for a time before 1970 or after 2112.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parsed = match text.as_bytes() {
            [_, _, b'/', ..] => OffsetDateTime::parse(text, COMMON).ok().map(|time| (micros(time), true)),
            [_, _, _, _, b'-', ..] => iso(text).map(|time| (micros(time), !text[ISO_SECONDS..].starts_with('.'))),
            _ => epoch(text),
        };
        let Some((at, is_whole_second)) = parsed else {
            return Err(format!("`{text}` is not a time in a known format"));
        };
        match Micros::try_from(at) {
            Ok(at @ 0..=MAX_MOMENT) => Ok(Self { at, is_whole_second }),
            _ => Err(format!("the time `{text}` is not within 1970 and 2112")),
        }
    }
}

fn micros(time: OffsetDateTime) -> i128 {
    time.unix_timestamp_nanos().div_euclid(1_000)
}

/// Parses RFC 3339, also with `+0200` or without an offset.
fn iso(text: &str) -> Option<OffsetDateTime> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        return Some(time);
    }
    let tail = text.get(ISO_SECONDS..)?;
    let offset = ISO_SECONDS + tail.find(['+', '-']).unwrap_or(tail.len());
    let whole = match text.len() - offset {
        0 => format!("{text}Z"),
        5 => format!("{}:{}", text.get(..offset + 3)?, text.get(offset + 3..)?),
        _ => return None,
    };
    OffsetDateTime::parse(&whole, &Rfc3339).ok()
}

fn epoch(text: &str) -> Option<(i128, bool)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 20 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let number: i128 = whole.parse().ok()?;
    let (_, per_second) = EPOCHS.into_iter().find(|(next, _)| number < *next)?;
    // As many digits as microseconds need, whatever the unit.
    let millionths: i128 = format!("{fraction:0<6.6}").parse().ok()?;
    let at = (number * 1_000_000 + millionths) / per_second;
    Some((at, per_second == 1 && !text.contains('.')))
}

/// Formats a time as `at 1.5s`, or as a date from [`DATES_FROM`] on.
pub(crate) fn at_text(at: Micros) -> String {
    let time = OffsetDateTime::from_unix_timestamp(at.div_euclid(SECOND));
    let Some(time) = time.ok().filter(|_| at >= DATES_FROM) else { return format!("at {}", human_duration(at)) };
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    let micros = at.rem_euclid(SECOND);
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    let fraction = fraction.trim_end_matches('0');
    format!("at {year}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z", u8::from(month))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_time_formats_are_parsed() {
        let day = 971_211_336_000_000;
        for (text, at, is_whole_second) in [
            ("10/Oct/2000:13:55:36 -0700", day, true),
            ("10/Oct/2000:20:55:36 +0000", day, true),
            ("2000-10-10T20:55:36Z", day, true),
            ("2000-10-10 20:55:36", day, true),
            ("2000-10-10T20:55:36.25", day + 250_000, false),
            ("2000-10-10T22:55:36+02:00", day, true),
            ("2000-10-10T22:55:36+0200", day, true),
            ("2000-10-10T13:25:36.000001999-0730", day + 1, false),
            ("2000-10-10T20:55:36.310Z", day + 310_000, false),
            ("971211336", day, true),
            ("971211336.0", day, false),
            ("971211336.123456", day + 123_456, false),
            ("971211336123", day + 123_000, false),
            ("971211336123.5", day + 123_500, false),
            ("971211336123456", day + 123_456, false),
            ("971211336123456789", day + 123_456, false),
            ("0", 0, true),
        ] {
            assert_eq!(Timestamp::parse(text), Ok(Timestamp { at, is_whole_second }), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "-",
            "now",
            "31/Feb/2000:13:55:36 -0700",
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36",
            "2000-10-10",
            "2000-10-10T20:55",
            "2000-13-10T20:55:36Z",
            "2000-10-10T20:55:36+02",
            "2000-10-10T20:55:36€€",
            "1.2.3",
            "-5",
            "1e9",
            ".5",
            "99999999999999999999999999",
            "2150-10-10T20:55:36Z",
            "1950-10-10T20:55:36Z",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn recent_times_are_printed_as_dates() {
        for (at, text) in [
            (1_500_000, "at 1.5s"),
            (971_211_336_000_000, "at 11240d20h55m36s"),
            (1_700_000_000_000_000, "at 2023-11-14T22:13:20Z"),
            (1_700_000_000_250_000, "at 2023-11-14T22:13:20.25Z"),
        ] {
            assert_eq!(at_text(at), text);
        }
    }
}
