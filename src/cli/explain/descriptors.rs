//! Explains which entry of a descriptor file a request's descriptor matches, by which rule, and which limits apply.

use std::{io, process::ExitCode};

use serde_json::{Value, json};
use weir_core::{domain::Charge, plan::Limit};
use weir_policy::{
    Domain,
    descriptors::{
        Descriptors, Rule, ValuePattern,
        resolve::{self, Step},
    },
    lint,
    overrides::ActiveOverrides,
};

use super::{banned, changed};
use crate::cli::{CommandResult, Failure, out::print_line};

/// A descriptor with its path through the tree.
struct Way<'a, 'o> {
    domain: &'a Domain,
    entries: Vec<(&'a str, &'a str)>,
    steps: Vec<Step<'a>>,
    active: Option<&'a ActiveOverrides<'o>>,
}

/// Explains the matches of a descriptor; `words` alternates its keys and values.
pub(super) fn explain(
    domain: &Domain,
    descriptors: &Descriptors,
    words: &[String],
    active: Option<&ActiveOverrides<'_>>,
    json: bool,
) -> CommandResult {
    if !words.len().is_multiple_of(2) {
        let message = "in a domain of descriptors every key has a value: KEY VALUE KEY VALUE …";
        return Err(Failure(format!("{message}; `{}` has none", words.last().map_or("", |word| word))));
    }
    let entries: Vec<_> = words.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let steps = resolve::steps(domain, descriptors, entries.iter().copied()).collect();
    let way = Way { domain, entries, steps, active };
    if json {
        print_line(way.as_json())?
    } else {
        way.print()?
    }
    Ok(ExitCode::SUCCESS)
}

impl Way<'_, '_> {
    fn print(&self) -> io::Result<()> {
        let charge = match self.domain.charge {
            Charge::AllOrNothing => "a refusal charges nothing (all_or_nothing)",
            Charge::Independent => "every descriptor is charged for itself (independent)",
            Charge::OverLimitOnly => {
                "where limits are exceeded only they are charged, those in shadow mode included (over_limit_only)"
            }
        };
        print_line(format_args!(
            "{}, of descriptors: {charge}; only the last entry's limits count",
            lint::shown(&self.domain.name)
        ))?;
        for (index, (key, value)) in self.entries.iter().enumerate() {
            let Some(step) = self.steps.get(index) else {
                print_line(format_args!("{key}={value}: no descriptor fits; the walk ends here"))?;
                break;
            };
            print_line(format_args!("{key}={value}: {}", how(step.rule)))?;
            let counts = index + 1 == self.entries.len();
            let passed = if counts { "" } else { ", ignored: more entries follow" };
            for limit in self.domain.limits_at(step.node) {
                print_line(format_args!("    {}{passed}", shown(limit)))?;
                if let Some(change) = self.changed(index, limit) {
                    print_line(format_args!("        {change}"))?;
                }
            }
            if step.rule.unlimited {
                print_line(format_args!("    unlimited{passed}"))?;
            }
            for (set, text) in [
                (step.rule.shadow, "shadow_mode: evaluated, never refuses"),
                (step.rule.quota, "quota_mode: refuses only when all descriptors with a quota are over"),
                (step.rule.share_threshold, "share_threshold: all values that fit count together"),
            ] {
                if set {
                    print_line(format_args!("    {text}"))?;
                }
            }
            let replaced: Vec<_> =
                step.rule.limits.iter().flat_map(|limit| &limit.replaces).map(|name| &**name).collect();
            if !replaced.is_empty() {
                print_line(format_args!("    replaces, in the same request: {}", replaced.join(", ")))?;
            }
        }
        if !self.is_limited() {
            print_line(format_args!("no limit applies: everything is allowed"))?;
        }
        if let Some(banned) = self.active.and_then(banned) {
            print_line(banned)?;
        }
        Ok(())
    }

    /// Describes the effect of an override on a limit of the last entry; limits of other entries do not apply.
    fn changed(&self, index: usize, limit: &Limit) -> Option<String> {
        let entries = self.entries.len();
        // An entry is two segments of the key.
        self.active.filter(|_| index + 1 == entries).and_then(|active| changed(active, 2 * entries, limit))
    }

    fn is_limited(&self) -> bool {
        let whole = self.steps.len() == self.entries.len();
        whole && self.steps.last().is_some_and(|step| !self.domain.limits_at(step.node).is_empty())
    }

    fn as_json(&self) -> Value {
        let steps = self.steps.iter().zip(&self.entries).enumerate().map(|(index, (step, (key, value)))| {
            let limits = self.domain.limits_at(step.node).iter().map(|limit| {
                json!({ "name": limit.name, "algorithm": limit.params.name(), "parameters": limit.params.describe(),
                    "counted_as": limit.ident_text(), "override": self.changed(index, limit) })
            });
            let found = match step.rule.value {
                ValuePattern::Exact(_) => "exact",
                ValuePattern::Pattern(_) => "pattern",
                ValuePattern::Any => "any",
            };
            json!({ "key": key, "value": value, "found": found, "descriptor": step.rule.value.text(),
                "limits": limits.collect::<Vec<_>>(), "counts": index + 1 == self.entries.len(),
                "unlimited": step.rule.unlimited, "shadow_mode": step.rule.shadow, "quota_mode": step.rule.quota,
                "share_threshold": step.rule.share_threshold })
        });
        json!({ "domain": self.domain.name, "charge": self.domain.charge.name(), "anchor": self.domain.anchor,
            "limited": self.is_limited(), "ban": self.active.and_then(banned), "steps": steps.collect::<Vec<_>>() })
    }
}

fn how(rule: &Rule) -> String {
    match &rule.value {
        ValuePattern::Exact(_) => "found by its value".to_owned(),
        ValuePattern::Pattern(pattern) => format!("found by the pattern `{pattern}`, the first that fits"),
        ValuePattern::Any => "found by the descriptor without a value".to_owned(),
    }
}

fn shown(limit: &Limit) -> String {
    let (name, algorithm, parameters) = (&limit.name, limit.params.name(), limit.params.describe());
    format!("{name}: {algorithm} {parameters}; counted as `{}`", limit.ident_text())
}
