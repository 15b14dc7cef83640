//! Time in whole microseconds. It is always a parameter; nothing here reads a clock.

use std::sync::atomic::{AtomicI64, Ordering};

/// Microseconds: a moment since the Unix epoch, or a duration. Signed, because a store's clock may be before the
/// start of a window. Always within ±2^53, so that a Lua double holds it exactly.
pub type Micros = i64;

/// The latest moment that a store accepts (2^52 µs, the year 2112), so that a moment plus the longest span of a
/// limit stays exact in a double.
pub const MAX_MOMENT: Micros = 1 << 52;

/// One second.
pub const SECOND: Micros = 1_000_000;
/// One day.
pub const DAY: Micros = 86_400 * SECOND;

/// The clock of a store, which reads it once for each decision.
pub trait Clock: Send + Sync + 'static {
    /// Returns the present time.
    fn now(&self) -> Micros;

    /// Whether `now` never decreases. Only then may a store drop expired states as soon as it finds them: after a
    /// clock steps back, a dropped state could be requested at a time at which it still counted.
    fn is_monotonic(&self) -> bool;
}

/// A clock that changes only when set: virtual time for `simulate` and tests. It may be set back.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Creates a clock set to `now`.
    pub fn new(now: Micros) -> Self {
        Self(AtomicI64::new(now))
    }

    /// Sets the clock to `now`, forward or back.
    pub fn set(&self, now: Micros) {
        self.0.store(now, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        self.0.load(Ordering::SeqCst)
    }

    fn is_monotonic(&self) -> bool {
        false
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Micros {
        self.as_ref().now()
    }

    fn is_monotonic(&self) -> bool {
        self.as_ref().is_monotonic()
    }
}

const UNITS: [(&str, Micros); 6] =
    [("us", 1), ("ms", 1_000), ("s", SECOND), ("m", 60 * SECOND), ("h", 3_600 * SECOND), ("d", DAY)];

/// Parses a duration as written in files and flags: `500us`, `250ms`, `60s`, `5m`, `1h`, `1d`, or whole seconds.
///
/// # Errors
/// A sentence that describes the problem, for a text of another form or a duration beyond 2^53 µs.
pub fn parse_duration(text: &str) -> Result<Micros, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = if unit.is_empty() { "s" } else { unit };
    let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    match (number.parse::<Micros>(), scale) {
        (Ok(number), Some(scale)) => number
            .checked_mul(scale)
            .filter(|micros| *micros <= 1 << 53)
            .ok_or_else(|| format!("`{text}` is too long a duration")),
        _ => Err(format!("`{text}` is not a duration; write 500us, 250ms, 60s, 5m, 1h, 1d or whole seconds")),
    }
}

/// Formats a duration in the largest unit that holds it without a fraction; `parse_duration` parses it back.
pub fn format_duration(micros: Micros) -> String {
    let (unit, scale) = UNITS.iter().rev().find(|(_, scale)| micros % scale == 0).unwrap_or(&UNITS[0]);
    if micros == 0 { "0s".to_owned() } else { format!("{}{unit}", micros / scale) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for (text, micros) in [
            ("500us", 500),
            ("250ms", 250_000),
            ("60", 60 * SECOND),
            ("90s", 90 * SECOND),
            ("5m", 300 * SECOND),
            ("1d", DAY),
        ] {
            assert_eq!(parse_duration(text), Ok(micros));
            assert_eq!(parse_duration(&format_duration(micros)), Ok(micros));
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in ["", "s", "1.5s", "-1s", "1w", "5 s", "99999999999d", "18446744073709551616"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
