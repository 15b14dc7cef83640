//! The change of burst and rate when a limit gets other parameters.

use std::fmt;

use weir_core::{
    algorithm::Params,
    domain::time::{DAY, SECOND},
};

/// Units in a burst and over time, before and after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// Units that an unused key may spend in a burst.
    pub at_once: [u64; 2],
    /// Units per second in the long run; `None` if either is a concurrency limit.
    pub per_second: Option<[f64; 2]>,
}

impl Effect {
    /// Computes the change from one limit to another.
    pub fn of(one: &Params, other: &Params) -> Self {
        let at_once = [one, other].map(Params::at_once);
        let per_second = per_second(one).zip(per_second(other)).map(|(one, other)| [one, other]);
        Self { at_once, per_second }
    }
}

fn per_second(params: &Params) -> Option<f64> {
    if matches!(params, Params::Concurrency(_)) {
        return None;
    }
    let (count, period) = params.long_run();
    Some(count as f64 * SECOND as f64 / period as f64)
}

fn ratio(before: f64, after: f64) -> f64 {
    if before == after { 1.0 } else { after / before }
}

/// `30 -> 60 a minute (twice as much), 16 at once as before`
impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rates) = self.per_second {
            let (unit, seconds) = unit_of(rates.into_iter().filter(|rate| *rate > 0.0).fold(f64::INFINITY, f64::min));
            write!(f, "{}, ", compared(rates.map(|rate| rate * seconds), unit))?;
        }
        f.write_str(&compared(self.at_once.map(|units| units as f64), "at once"))
    }
}

/// Formats a comparison: `30 -> 60 a minute (twice as much)`, or `30 a minute as before`.
fn compared([before, after]: [f64; 2], unit: &str) -> String {
    let ratio = ratio(before, after);
    if is_same(ratio) {
        return format!("{} {unit} as before", number(before));
    }
    format!("{} -> {} {unit} ({})", number(before), number(after), times(ratio))
}

/// Returns the shortest unit that has at least one, and its length in seconds.
fn unit_of(per_second: f64) -> (&'static str, f64) {
    let day = (DAY / SECOND) as f64;
    let units = [("a second", 1.0), ("a minute", 60.0), ("an hour", 3_600.0), ("a day", day)];
    units.into_iter().find(|(_, seconds)| per_second * seconds >= 0.999_999).unwrap_or(("in 30 days", 30.0 * day))
}

fn is_same(ratio: f64) -> bool {
    (ratio - 1.0).abs() < 1e-9
}

/// Formats a ratio: `twice as much`, `half as much`, `1.5 times as much`.
fn times(ratio: f64) -> String {
    match ratio {
        _ if !ratio.is_finite() => "there was none".to_owned(),
        0.0 => "none any more".to_owned(),
        _ if is_same(ratio / 2.0) => "twice as much".to_owned(),
        _ if is_same(ratio * 2.0) => "half as much".to_owned(),
        0.1.. => format!("{} times as much", number(ratio)),
        _ => format!("1/{} as much", number(1.0 / ratio)),
    }
}

/// Formats a number with at most three decimals, without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_written_with_the_unit_that_has_at_least_one() {
        for (per_second, at_once, expected) in [
            (Some([0.5, 0.75]), [16, 16], "30 -> 45 a minute (1.5 times as much), 16 at once as before"),
            (Some([2.0, 0.5]), [1, 1], "120 -> 30 a minute (0.25 times as much), 1 at once as before"),
            (Some([1.0, 2.0]), [1, 2], "1 -> 2 a second (twice as much), 1 -> 2 at once (twice as much)"),
            (Some([2.0, 1.0]), [2, 1], "2 -> 1 a second (half as much), 2 -> 1 at once (half as much)"),
            (Some([1.0, 1.0]), [10, 1], "1 a second as before, 10 -> 1 at once (0.1 times as much)"),
            (Some([1.0, 1.0]), [11, 1], "1 a second as before, 11 -> 1 at once (1/11 as much)"),
            (Some([1.0 / 3_600.0; 2]), [3, 1], "1 an hour as before, 3 -> 1 at once (0.333 times as much)"),
            (Some([1.0 / 86_400.0; 2]), [0, 1], "1 a day as before, 0 -> 1 at once (there was none)"),
            (Some([1.0 / 86_401.0; 2]), [1, 0], "30 in 30 days as before, 1 -> 0 at once (none any more)"),
            (Some([0.0, 1.0 / 60.0]), [0, 0], "0 -> 1 a minute (there was none), 0 at once as before"),
            (None, [5, 7], "5 -> 7 at once (1.4 times as much)"),
        ] {
            assert_eq!(Effect { at_once, per_second }.to_string(), expected);
        }
    }
}
