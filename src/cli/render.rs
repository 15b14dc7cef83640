//! Decisions as a person or a script reads them.

use serde::Serialize;
use weir_core::domain::Micros;

use crate::{limiter::Answer, proto};

/// A decision as `simulate` and `--json` print it. Without a limit: limit, remaining and binding are null.
#[derive(Serialize)]
pub struct Decided {
    pub allowed: bool,
    pub limit: Option<u64>,
    pub remaining: Option<u64>,
    pub retry_after_us: Option<Micros>,
    pub reset_after_us: Micros,
    pub wait_us: Micros,
    pub never: bool,
    /// Told only where it is so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    pub binding: Option<u32>,
    pub levels: Vec<Level>,
}

/// One level of it.
#[derive(Serialize)]
pub struct Level {
    pub name: String,
    pub depth: u32,
    pub shadow: bool,
    pub allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    pub retry_after_us: Option<Micros>,
    pub reset_after_us: Micros,
    pub wait_us: Micros,
    pub never: bool,
}

impl From<&Answer<'_>> for Decided {
    fn from(answer: &Answer<'_>) -> Self {
        crate::transport::encode::check(answer, false).into()
    }
}

impl From<proto::CheckResponse> for Decided {
    fn from(answer: proto::CheckResponse) -> Self {
        let limited = answer.binding.is_some();
        Self {
            allowed: answer.allowed,
            limit: limited.then_some(answer.limit),
            remaining: limited.then_some(answer.remaining),
            retry_after_us: answer.retry_after.as_ref().map(micros),
            reset_after_us: answer.reset_after.as_ref().map_or(0, micros),
            wait_us: answer.wait.as_ref().map_or(0, micros),
            never: answer.never,
            degraded: answer.degraded,
            binding: answer.binding,
            levels: answer.levels.into_iter().map(Level::from).collect(),
        }
    }
}

impl From<proto::LevelResult> for Level {
    fn from(level: proto::LevelResult) -> Self {
        Self {
            name: level.name,
            depth: level.depth,
            shadow: level.shadow,
            allowed: level.allowed,
            limit: level.limit,
            remaining: level.remaining,
            retry_after_us: level.retry_after.as_ref().map(micros),
            reset_after_us: level.reset_after.as_ref().map_or(0, micros),
            wait_us: level.wait.as_ref().map_or(0, micros),
            never: level.never,
        }
    }
}

fn micros(duration: &prost_types::Duration) -> Micros {
    duration.seconds * 1_000_000 + Micros::from(duration.nanos) / 1_000
}

impl Decided {
    /// For a person: one line that says it all, then a line for each level, the binding one marked.
    pub fn text(&self) -> String {
        let mut text = match (self.binding.and_then(|index| self.levels.get(index as usize)), self.allowed) {
            (None, _) => "allowed: no limit applies\n".to_owned(),
            (Some(level), true) => format!("allowed{}; {}\n", waiting(self.wait_us), level.standing()),
            (Some(level), false) => format!("refused by {}: {}\n", level.name, level.standing()),
        };
        if self.degraded {
            text.push_str("  (degraded: the shared store did not answer, so this was decided without it)\n");
        }
        let width = self.levels.iter().map(|level| level.name.chars().count()).max().unwrap_or(0);
        for (index, level) in self.levels.iter().enumerate() {
            let mark = if self.binding == Some(index as u32) { '*' } else { ' ' };
            let verdict = if level.allowed { "allowed" } else { "refused" };
            let shadow = if level.shadow { " (shadow)" } else { "" };
            let standing = level.standing();
            text.push_str(&format!("{mark} {:width$}  {verdict}{shadow}  {standing}\n", level.name));
        }
        text
    }
}

impl Level {
    fn standing(&self) -> String {
        let left = format!("{} of {} left", self.remaining, self.limit);
        match (self.retry_after_us, self.never) {
            (Some(retry), _) => {
                format!("{left}, retry after {}, as new after {}", shown(retry), shown(self.reset_after_us))
            }
            (None, true) => format!("{left}, never: the cost is above the limit"),
            (None, false) => format!("{left}, as new after {}", shown(self.reset_after_us)),
        }
    }
}

fn waiting(wait: Micros) -> String {
    if wait > 0 { format!(", start in {}", shown(wait)) } else { String::new() }
}

/// A length of time for a person: below a minute in seconds to the microsecond, above it as in `6h48m30s`, rounded up to
/// the second.
pub fn shown(micros: Micros) -> String {
    if micros < 60_000_000 {
        let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        return format!("{}s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    let mut rest = (micros + 999_999) / 1_000_000;
    let mut text = String::new();
    for (unit, seconds) in [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)] {
        if rest >= seconds {
            text.push_str(&format!("{}{unit}", rest / seconds));
            rest %= seconds;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn times_are_shown_for_people() {
        for (micros, text) in
            [(0, "0s"), (1_500_000, "1.5s"), (7, "0.000007s"), (60_000_000, "1m"), (24_509_609_996, "6h48m30s")]
        {
            assert_eq!(shown(micros), text);
        }
    }
}
