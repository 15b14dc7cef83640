//! Overrides as text and as JSON.

use prost_types::Timestamp;
use serde_json::{Value, json};
use weir_core::{
    algorithm::Bounds,
    domain::{Micros, key::domain_label, time::SECOND},
};
use weir_policy::overrides::{ANY, LimitChanges, MAX_EFFECTS};

use crate::{
    cli::out::on_one_line,
    proto::{AuditEvent, Override, OverrideEffect, r#override::Change},
};

/// Formats a pattern, with its domain unless that is the default one.
pub(super) fn pattern(domain: &str, key: &[String]) -> String {
    let keys = if key.is_empty() { "all keys".to_owned() } else { key.join(" / ") };
    if domain.is_empty() { keys } else { format!("{keys} of {}", domain_label(domain)) }
}

/// Formats the change of an override.
fn change(one: &Override) -> String {
    match &one.change {
        Some(Change::Factor(factor)) if *factor < 1.0 => format!("limits times {}", rounded(1.0 / factor)),
        Some(Change::Factor(factor)) => format!("limits divided by {}", rounded(*factor)),
        Some(Change::Limits(limits)) => format!("limits {limits}"),
        Some(Change::Unlimited(_)) => "unlimited".to_owned(),
        Some(Change::Shadow(_)) => "shadow".to_owned(),
        Some(Change::Ban(_)) => "banned".to_owned(),
        // The replica's log has the reason under the id.
        None => "the replica cannot read it, so it is not in force".to_owned(),
    }
}

/// Rounds away the error of a division: 10, and not 9.999999999999998.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// Formats an override on one line.
pub(super) fn line(one: &Override) -> String {
    let Override { id, domain, key, reason, author, start, end, set_at, .. } = one;
    if one.change.is_none() {
        return on_one_line(&format!("{id}  {}: {}", pattern(domain, key), change(one))).into_owned();
    }
    let start = start.filter(|start| Some(start) != set_at.as_ref()).map(|start| format!(" from {start}"));
    let end = end.map_or(", until it is ended".to_owned(), |end| format!(" until {end}"));
    let start = start.unwrap_or_default();
    on_one_line(&format!("{id}  {}: {}{start}{end}; {author}: {reason}", pattern(domain, key), change(one)))
        .into_owned()
}

/// Returns an override as JSON, in the form in which it is stored.
pub(super) fn json(one: &Override) -> Value {
    let Override { id, domain, key, reason, author, start, end, set_at, .. } = one;
    let micros = |at: &Option<Timestamp>| at.map(|at| at.seconds * SECOND + Micros::from(at.nanos / 1_000));
    let mut value = json!({
        "id": id, "domain": domain, "key": key, "reason": reason, "author": author,
        "set_at_us": micros(set_at), "start_us": micros(start), "end_us": micros(end),
    });
    let (name, change) = match &one.change {
        Some(Change::Factor(factor)) => ("factor", json!(factor)),
        Some(Change::Limits(limits)) => ("limits", json!(limits)),
        Some(Change::Unlimited(flag)) => ("unlimited", json!(flag)),
        Some(Change::Shadow(flag)) => ("shadow", json!(flag)),
        Some(Change::Ban(flag)) => ("ban", json!(flag)),
        None => return json!({ "id": id, "domain": domain, "key": key, "unreadable": true }),
    };
    value[name] = change;
    value
}

/// Formats an override that was set, or would be: a line, and one for each limit that it changes.
pub(super) fn set_text(
    set: &Override,
    replaced: Option<&Override>,
    effects: &[OverrideEffect],
    dry_run: bool,
) -> String {
    let mut text = format!("{}{}", if dry_run { "would set " } else { "set " }, line(set));
    if let Some(replaced) = replaced {
        text.push_str(&format!("\n  in place of {}", line(replaced)));
    }
    for OverrideEffect { limit, before, after } in effects.iter().filter(|effect| effect.before != effect.after) {
        text.push_str(&format!("\n  {limit}: {before} -> {after}"));
    }
    for segment in set.key.iter().filter(|segment| segment.contains('*') && *segment != ANY) {
        text.push_str(&format!(
            "\n  `{}` is not a wildcard: only a segment of just that text matches it",
            on_one_line(segment)
        ));
    }
    let changes = match &set.change {
        Some(Change::Limits(limits)) => LimitChanges::parse(limits, &Bounds { max_period: Micros::MAX }).ok(),
        _ => None,
    };
    for (name, _) in changes.iter().flat_map(LimitChanges::targets).filter(is_place) {
        text.push_str(&format!(
            "\n  `{}` is a place in the policy file, where another limit may be after a change: give the limit a name",
            on_one_line(name.unwrap_or_default())
        ));
    }
    match &set.change {
        // A ban acts also on keys below the limits.
        Some(Change::Ban(_)) if effects.is_empty() => {
            text.push_str(
                "\n  no limit of the policy is at the pattern or below, or the domain is unknown; the ban is in force all the same",
            );
        }
        Some(Change::Ban(_)) => {}
        // If the effects are truncated, a limit that is not listed may be changed.
        Some(Change::Limits(_)) if effects.len() < MAX_EFFECTS => {
            let unmet = changes.iter().flat_map(|changes| unmet(changes, effects));
            unmet.for_each(|what| text.push_str(&format!("\n  changes no limit: {what}")));
        }
        _ if effects.is_empty() => {
            text.push_str("\n  no limit of the policy is changed: the pattern meets none (see `weir limits explain`)");
        }
        _ => {}
    }
    text
}

/// Whether a limit is named as unnamed ones are shown, by its place: `user/*#gcra0`.
fn is_place((name, algorithm): &(Option<&str>, &str)) -> bool {
    let place = name.and_then(|name| name.rsplit_once('#')?.1.strip_prefix(algorithm));
    place.is_some_and(|number| number.parse::<u16>().is_ok())
}

/// Returns the reasons for which parameters change no limit of the policy.
fn unmet(changes: &LimitChanges, effects: &[OverrideEffect]) -> Vec<String> {
    let why = |(name, algorithm): (Option<&str>, &str)| {
        let named = effects.iter().filter(|effect| name.is_none_or(|name| effect.limit == name));
        let mut algorithms = named.filter_map(|effect| effect.before.split(' ').next());
        match (name, algorithms.clone().next()) {
            _ if algorithms.any(|its| its == algorithm) => None,
            (Some(name), Some(other)) => Some(format!("`{name}` is a {other}")),
            (Some(name), None) => Some(format!("no limit at the pattern or below is called `{name}`")),
            (None, _) => Some(format!("no limit at the pattern or below is a {algorithm}")),
        }
    };
    changes.targets().filter_map(why).collect()
}

/// Like [`set_text`], as JSON.
pub(super) fn set_json(
    set: &Override,
    replaced: Option<&Override>,
    effects: &[OverrideEffect],
    keys: Option<u64>,
) -> Value {
    let effect = |OverrideEffect { limit, before, after }: &OverrideEffect| json!({ "limit": limit, "before": before, "after": after });
    json!({
        "dry_run": keys.is_some(),
        "keys": keys,
        "override": json(set),
        "replaced": replaced.map(json),
        "effects": effects.iter().map(effect).collect::<Vec<_>>(),
    })
}

/// Formats a change on one line.
pub(super) fn event(AuditEvent { at, actor, before, after, .. }: &AuditEvent) -> String {
    let (at, actor) = (at.map(|at| at.to_string()).unwrap_or_default(), on_one_line(actor));
    match (before, after) {
        (None, Some(after)) => format!("{at}  {actor} set {}", line(after)),
        (Some(before), Some(after)) => format!("{at}  {actor} set {}, in place of {}", line(after), line(before)),
        (Some(before), None) => format!("{at}  {actor} ended {}", line(before)),
        (None, None) => format!("{at}  {actor} changed what the replica cannot read"),
    }
}

/// Like [`event`], as JSON.
pub(super) fn event_json(AuditEvent { id, at, actor, before, after }: &AuditEvent) -> Value {
    json!({
        "id": id, "at": at.map(|at| at.to_string()), "actor": actor,
        "before": before.as_ref().map(json), "after": after.as_ref().map(json),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_named_by_its_place_is_pointed_out() {
        let text = |name: &str| {
            let limits = format!("{{ name: '{name}', gcra: {{ burst: 4, count: 5, period: 60s }} }}");
            set_text(&Override { change: Some(Change::Limits(limits)), ..Default::default() }, None, &[], false)
        };
        assert!(text("user/*#gcra0").contains("\n  `user/*#gcra0` is a place in the policy file"));
        for name in ["per-user", "gcra0", "user/*#gcra", "a#fixed_window0"] {
            assert!(!text(name).contains("place"), "{name}");
        }
    }

    #[test]
    fn texts_of_others_cannot_break_lines() {
        let reason = "x\n2026-11-28T08:00:00Z  alice set \u{1b}[2J\u{9b}2J".to_owned();
        let after =
            Override { reason, change: Some(Change::Ban(true)), author: "a\rb".to_owned(), ..Default::default() };
        let event = event(&AuditEvent { actor: "\u{7}ops".to_owned(), after: Some(after), ..Default::default() });
        assert!(!event.contains(char::is_control) && event.contains("alice set"), "{event:?}");
    }
}
