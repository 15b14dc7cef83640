//! Decisions as text and as JSON.

use serde::ser::{Serialize, SerializeMap, Serializer};
use weir_core::domain::{Decision, Micros, Summary};

use super::out::on_one_line;
use crate::{limiter::Answer, proto, transport::decision_json};

/// A decision in the form that `simulate` and `--json` print. Without a limit: limit, remaining and binding are null.
pub(super) struct RenderedDecision {
    pub summary: Summary,
    /// Printed only if true.
    degraded: bool,
    /// Printed only if true.
    leased: bool,
    /// The id of the override that applied, and the reason of a ban; printed only if there are any.
    overridden: Option<String>,
    ban_reason: Option<String>,
    levels: Vec<Level>,
}

/// One level of the decision.
struct Level {
    name: String,
    depth: u32,
    shadow: bool,
    decision: Decision,
}

impl From<&Answer<'_>> for RenderedDecision {
    fn from(answer: &Answer<'_>) -> Self {
        let levels = answer.levels.iter().map(|level| Level {
            name: level.limit.name.to_string(),
            depth: level.depth.into(),
            shadow: level.shadow,
            decision: level.decision,
        });
        let Answer { summary, degraded, leased, overridden, .. } = *answer;
        let ban_reason = overridden.and_then(|it| it.ban).map(|ban| ban.reason.to_owned());
        let overridden = overridden.map(|it| it.id.to_owned());
        Self { summary, degraded, leased, overridden, ban_reason, levels: levels.collect() }
    }
}

impl From<proto::CheckResponse> for RenderedDecision {
    fn from(answer: proto::CheckResponse) -> Self {
        let binding = answer.binding.map(|index| index as usize);
        let summary = Summary { decision: Decision::from(&answer), binding };
        let level = |level: proto::LevelResult| Level {
            decision: Decision::from(&level),
            name: level.name,
            depth: level.depth,
            shadow: level.shadow,
        };
        let levels = answer.levels.into_iter().map(level).collect();
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let (overridden, ban_reason) = (given(answer.r#override), given(answer.ban_reason));
        Self { summary, degraded: answer.degraded, leased: answer.leased, overridden, ban_reason, levels }
    }
}

impl Serialize for RenderedDecision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        decision_json::serialize(&mut members, &self.summary.decision, self.summary.binding.is_some())?;
        if self.degraded {
            members.serialize_entry("degraded", &true)?;
        }
        if self.leased {
            members.serialize_entry("leased", &true)?;
        }
        if let Some(overridden) = &self.overridden {
            members.serialize_entry("override", overridden)?;
        }
        if let Some(reason) = &self.ban_reason {
            members.serialize_entry("ban_reason", reason)?;
        }
        members.serialize_entry("binding", &self.summary.binding)?;
        members.serialize_entry("levels", &self.levels)?;
        members.end()
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("name", &self.name)?;
        members.serialize_entry("depth", &self.depth)?;
        members.serialize_entry("shadow", &self.shadow)?;
        decision_json::serialize(&mut members, &self.decision, true)?;
        members.end()
    }
}

impl RenderedDecision {
    /// The name of the binding limit.
    pub(super) fn binding_name(&self) -> Option<&str> {
        self.summary.binding.and_then(|index| self.levels.get(index)).map(|level| level.name.as_str())
    }

    /// Formats the decision on one of `checks` of this cost that are decided together: a summary line, then a line for
    /// each level, the binding one marked.
    pub(super) fn text(&self, cost: i64, checks: usize) -> String {
        let summary = |level: &Level| level.summary(cost, checks);
        let Summary { decision, binding } = &self.summary;
        let mut text = match (binding.and_then(|index| self.levels.get(index)), decision.allowed) {
            _ if self.ban_reason.is_some() => self.banned(),
            (None, _) if self.levels.is_empty() && self.overridden.is_some() => {
                "allowed: an override lifts the limits\n".to_owned()
            }
            (None, _) if self.levels.is_empty() => "allowed: no limit applies\n".to_owned(),
            (None, _) => "allowed: every limit is in shadow mode\n".to_owned(),
            (Some(level), true) => format!("allowed{}; {}\n", waiting(decision.wait), summary(level)),
            (Some(level), false) => format!("refused by {}: {}\n", level.name, summary(level)),
        };
        if self.degraded {
            text.push_str("  (degraded: decided without the shared store, which did not answer)\n");
        }
        if let Some(id) = &self.overridden {
            text.push_str(&format!("  (override {id})\n"));
        }
        if self.leased {
            text.push_str("  (leased: decided from units that the replica holds of the shared store)\n");
        }
        let width = self.levels.iter().map(|level| level.name.chars().count()).max().unwrap_or(0);
        for (index, level) in self.levels.iter().enumerate() {
            let mark = if *binding == Some(index) { '*' } else { ' ' };
            let verdict = if level.decision.allowed { "allowed" } else { "refused" };
            let shadow = if level.shadow { " (shadow)" } else { "" };
            let summary = summary(level);
            text.push_str(&format!("{mark} {:width$}  {verdict}{shadow}  {summary}\n", level.name));
        }
        text
    }
}

impl RenderedDecision {
    fn banned(&self) -> String {
        let reason = on_one_line(self.ban_reason.as_deref().unwrap_or_default());
        match self.summary.decision.retry_after {
            Some(ends) => format!("refused by a ban, which ends in {}: {reason}\n", human_duration(ends)),
            None => format!("refused by a ban: {reason}\n"),
        }
    }
}

impl Level {
    fn summary(&self, cost: i64, checks: usize) -> String {
        let Decision { limit, remaining, retry_after, next_after, reset_after, never, .. } = self.decision;
        // Often it equals one of the other times.
        let next = next_after.filter(|next| *next != reset_after && next_after != retry_after);
        let next = next.map(|next| format!(", the next in {}", human_duration(next))).unwrap_or_default();
        let left = format!("{remaining} of {limit} left{next}");
        let new = format!("full again in {}", human_duration(reset_after));
        match (retry_after, never) {
            (Some(retry), _) => format!("{left}, retry after {}, {new}", human_duration(retry)),
            (None, true) => format!("{left}, never: {}", never_reason(cost, checks, limit)),
            (None, false) => format!("{left}, {new}"),
        }
    }
}

/// Returns why no wait makes one of `checks` of this cost pass. Checks of different keys may share a count.
fn never_reason(cost: i64, checks: usize, limit: u64) -> &'static str {
    if i128::from(cost) > i128::from(limit) {
        "the cost is above the limit"
    } else if i128::from(cost) * checks as i128 > i128::from(limit) {
        "the checks together cost more than the limit"
    } else {
        // Shaping limits refuse a request that would wait longer than `max_wait`.
        "no wait that is allowed is long enough"
    }
}

fn waiting(wait: Micros) -> String {
    if wait > 0 { format!(", start in {}", human_duration(wait)) } else { String::new() }
}

/// Formats a duration: below a minute in seconds to the microsecond, above it as in `6h48m30s`, rounded up to the
/// second.
pub(super) fn human_duration(micros: Micros) -> String {
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
    use super::{human_duration, never_reason};

    #[test]
    fn the_cost_is_named_as_the_reason_only_if_it_is_above_the_limit() {
        assert_eq!(never_reason(2, 1, 1), "the cost is above the limit");
        assert_eq!(never_reason(1, 2, 1), "the checks together cost more than the limit");
        assert_eq!(never_reason(1, 1, 1), "no wait that is allowed is long enough");
    }

    #[test]
    fn durations_are_printed_in_readable_units() {
        for (micros, text) in
            [(0, "0s"), (1_500_000, "1.5s"), (7, "0.000007s"), (60_000_000, "1m"), (24_509_609_996, "6h48m30s")]
        {
            assert_eq!(human_duration(micros), text);
        }
    }
}
