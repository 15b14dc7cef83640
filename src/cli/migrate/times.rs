//! Durations, which Go formats differently.

use std::ops::RangeInclusive;

use weir_core::domain::Micros;
use weir_settings::Time;

use super::{environment::Environment, translation::Translation};

/// Parses the duration in a variable, if it is set.
///
/// # Errors
/// The name of the variable, if its value is not a duration.
pub(super) fn given(environment: &Environment, name: &str) -> Result<Option<Micros>, String> {
    let Some(text) = environment.text(name) else { return Ok(None) };
    go_duration(text).map(Some).ok_or_else(|| format!("{name} is not a duration, such as 10s or 1m30s"))
}

/// Sets a key to `kept`: the duration in the variable, clamped to the bounds of the setting.
pub(super) fn set(translation: &mut Translation, key: &'static str, name: &str, given: Micros, kept: Micros) {
    let bounded = if kept == given { "" } else { ", within the bounds here" };
    translation.set(key, String::from(Time(kept)), format!("from {name}{bounded}"));
}

/// Returns the time within these bounds that is closest to it.
pub(super) fn within(time: Micros, bounds: &RangeInclusive<Micros>) -> Micros {
    time.clamp(*bounds.start(), *bounds.end())
}

/// Parses a duration in Go's format, such as `1m30.5s`, to microseconds.
fn go_duration(text: &str) -> Option<Micros> {
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut micros) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, unit) = rest.split_at(end);
        let end = unit.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(unit.len());
        let scale = match &unit[..end] {
            "ns" => 1e-3,
            "us" | "µs" | "μs" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            "m" => 60e6,
            "h" => 3_600e6,
            _ => return None,
        };
        micros += number.parse::<f64>().ok()? * scale;
        rest = &unit[end..];
    }
    // A duration that overflows saturates; the caller bounds it.
    (!text.is_empty()).then_some(micros.round() as Micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::domain::time::SECOND;

    #[test]
    fn go_durations_are_parsed() {
        for (text, micros) in [
            ("10s", Some(10 * SECOND)),
            ("1m30s", Some(90 * SECOND)),
            ("1.5s", Some(1_500_000)),
            ("250ms", Some(250_000)),
            ("1h0m0.5s", Some(3_600_500_000)),
            ("0", Some(0)),
            ("7µs", Some(7)),
            ("10", None),
            ("", None),
            ("s", None),
            ("1d", None),
            ("-1s", None),
            ("1.2.3s", None),
        ] {
            assert_eq!(go_duration(text), micros, "{text}");
        }
    }
}
