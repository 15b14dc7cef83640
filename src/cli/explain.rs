//! `weir limits explain`

mod descriptors;
mod overrides;

use std::{io, path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::json;
use weir_core::{
    domain::{
        Charge, Key,
        time::{Micros, format_duration},
    },
    plan::{Levels, Limit, Plan},
};
use weir_policy::{
    Domain, lint,
    overrides::{ActiveOverrides, Applied},
    tree::Found,
};

use super::{
    CommandResult, Failure, hint,
    out::{print_error, print_line},
    rules::RulesArgs,
};

/// Explain which limits apply to a key, and why
#[derive(Args)]
pub(super) struct Explain {
    /// A policy file, or a directory of them
    path: PathBuf,
    /// The key's segments, root first; in a domain of descriptors KEY VALUE KEY VALUE …
    #[arg(required = true, value_name = "KEY")]
    key: Vec<String>,
    /// The domain whose policy decides
    #[arg(long, default_value = "")]
    domain: String,
    /// Also say what these overrides change: a file with the output of `weir overrides --json`
    #[arg(long, value_name = "FILE")]
    overrides: Option<PathBuf>,
    #[command(flatten)]
    rules: RulesArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) fn run(self) -> CommandResult {
        hint::check_expansion(&self.key)?;
        let rules = self.rules.rules()?;
        let mut policy = weir_policy::load(&self.path, &rules)?.policy;
        if let Some(path) = &self.overrides {
            policy = policy.overridden(overrides::load(path, &rules.bounds)?);
        }
        let Some(domain) = policy.domain(&self.domain) else {
            let known = hint::domains(&self.domain, &policy.suggest_domains(&self.domain));
            return Err(Failure(format!("no file defines the {}{known}", lint::shown(&self.domain))));
        };
        if let Some(descriptors) = &domain.descriptors {
            let active = policy.overrides().active(&self.domain, self.key.iter().map(|word| word.as_bytes()));
            return descriptors::explain(domain, descriptors, &self.key, active.as_ref(), self.json);
        }
        let key = Key::new(&self.domain, &self.key)?;
        let steps: Vec<_> = domain.walk(&key).collect();
        let active = policy.overrides().active(&self.domain, key.segments());
        let lease = lease(domain, &key, active.as_ref());
        if self.json {
            print_line(self.as_json(domain, &steps, active.as_ref(), lease.is_ok()))?;
        } else {
            self.print(domain, &steps, active.as_ref(), &lease)?;
        }
        if !domain.is_matched(&key) {
            print_error(format_args!(
                "weir: warning: {}",
                hint::unlimited(&self.key, Some(&domain.suggest(&self.key)), hint::KeyForm::Arguments)
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(
        &self,
        domain: &Domain,
        steps: &[(usize, Found, u32)],
        active: Option<&ActiveOverrides<'_>>,
        lease: &Result<Micros, String>,
    ) -> io::Result<()> {
        let charge = match domain.charge {
            Charge::AllOrNothing => "a refusal charges nothing (all_or_nothing)",
            Charge::Independent | Charge::OverLimitOnly => "every limit that passes is charged (independent)",
        };
        let shadow = if domain.shadow { "; shadow: every request passes" } else { "" };
        print_line(format_args!("{}: {charge}; anchor {}{shadow}", lint::shown(&domain.name), domain.anchor))?;
        for (index, segment) in self.key.iter().enumerate() {
            let path = self.key[..=index].join(" / ");
            let Some((depth, found, node)) = steps.get(index) else {
                print_line(format_args!("{path}: no node for `{segment}`; the walk ends here"))?;
                break;
            };
            let how = match found {
                Found::Exact => "by its name",
                Found::Pattern => "by a pattern",
                Found::Any => "by `*`",
            };
            print_line(format_args!("{path}: found {how}"))?;
            for limit in domain.limits_at(*node) {
                let shadow = if limit.shadow { ", shadow" } else { "" };
                let (algorithm, parameters) = (limit.params.name(), limit.params.describe());
                let leased = match (limit.lease(), limit.leasable(), lease) {
                    (None, ..) => String::new(),
                    (_, Err(reason), _) => format!(", cannot be leased ({reason})"),
                    (_, _, Ok(ttl)) => format!(", leased for {}", format_duration(*ttl)),
                    (_, _, Err(reason)) => format!(", not leased for this key ({reason})"),
                };
                print_line(format_args!(
                    "    {}: {algorithm} {parameters}{shadow}{leased}; counted as `{}`",
                    limit.name,
                    limit.ident_text()
                ))?;
                if let Some(change) = active.and_then(|active| changed(active, *depth, limit)) {
                    print_line(format_args!("        {change}"))?;
                }
            }
        }
        let total: usize = steps.iter().map(|(_, _, node)| domain.limits_at(*node).len()).sum();
        if total == 0 {
            print_line(format_args!("no limit on the path: everything is allowed"))?;
        }
        if let Some(banned) = active.and_then(banned) {
            print_line(banned)?;
        }
        Ok(())
    }

    fn as_json(
        &self,
        domain: &Domain,
        steps: &[(usize, Found, u32)],
        active: Option<&ActiveOverrides<'_>>,
        leased: bool,
    ) -> serde_json::Value {
        let steps = steps.iter().map(|(depth, found, node)| {
            let limits = domain.limits_at(*node).iter().map(|limit| {
                json!({ "name": limit.name, "algorithm": limit.params.name(), "parameters": limit.params.describe(),
                    "shadow": limit.shadow, "leased": leased,
                    "counted_as": limit.ident_text(),
                    "override": active.and_then(|active| changed(active, *depth, limit)) })
            });
            json!({ "segment": self.key[depth - 1], "depth": depth, "found": format!("{found:?}").to_lowercase(),
                "limits": limits.collect::<Vec<_>>() })
        });
        json!({ "domain": domain.name, "charge": domain.charge.name(), "anchor": domain.anchor, "shadow": domain.shadow,
            "ban": active.and_then(banned), "steps": steps.collect::<Vec<_>>() })
    }
}

/// Returns the TTL of leases of the key, which all limits on its path have together, or why it is not leased.
fn lease<'a>(domain: &'a Domain, key: &'a Key, active: Option<&ActiveOverrides<'a>>) -> Result<Micros, String> {
    if active.is_some_and(|active| active.ban().is_some()) {
        return Err("the key is banned".to_owned());
    }
    let mut levels = Levels::new();
    domain.add_levels(&mut levels, key, 1, 1.0).map_err(|error| error.to_string())?;
    if let Some(active) = active {
        active.change(&mut levels, 1.0, false);
    }
    let mut plan = Plan::new(levels, domain.charge, None);
    if plan.levels().is_empty() {
        return Err("no limit is in force".to_owned());
    }
    plan.policy_version = Some(0);
    plan.lease_ttl().ok_or_else(|| match plan.levels().iter().find(|level| level.limit.leased_for().is_none()) {
        _ if domain.charge != Charge::AllOrNothing => format!("charge is {}", domain.charge.name()),
        Some(level) => format!("`{}` is not leased", level.limit.name),
        None => "two of its limits share a state".to_owned(),
    })
}

/// Describes the effect of an override on a limit.
fn changed(active: &ActiveOverrides<'_>, depth: usize, limit: &Limit) -> Option<String> {
    match active.at(depth as u8, limit) {
        Applied::Unchanged => None,
        Applied::Lifted(by) => Some(format!("lifted by override {}", by.id)),
        Applied::Changed(limit, by) => {
            let shadow = if limit.shadow { ", shadow" } else { "" };
            Some(format!("under override {}: {} {}{shadow}", by.id, limit.params.name(), limit.params.describe()))
        }
    }
}

fn banned(active: &ActiveOverrides<'_>) -> Option<String> {
    let by = active.ban()?;
    Some(format!("refused by the ban {}: {}", by.id, by.ban?.reason))
}
