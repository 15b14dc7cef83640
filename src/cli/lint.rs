//! `weir limits lint`

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use weir_core::{algorithm::Bounds, domain::time::parse_duration};
use weir_policy::{
    Rules,
    lint::{self, Changes},
};

use super::{CommandResult, Failure, NO, out::say};

/// Check policy files
///
/// Prints every error with file, line and column, then warnings. Exit code 0: valid; 1: warnings, with --strict; 2: not
/// valid.
#[derive(Args)]
pub struct Lint {
    /// A policy file, or a directory of them
    path: PathBuf,
    /// What a shell makes of an unquoted `*`
    #[arg(hide = true)]
    more: Vec<PathBuf>,
    /// Compare with this older policy: print which counts the change would forget, and which limits keep theirs
    #[arg(long, value_name = "OLD")]
    against: Option<PathBuf>,
    /// Longest period that is allowed, as in the setting max_period
    #[arg(long, value_name = "TIME", default_value = "31d")]
    max_period: String,
    /// Allow several descriptor files for one domain, as the setting envoy.merge_domains does
    #[arg(long)]
    merge_domains: bool,
    /// Reject files that do not end with a line `...`, as the setting limits_require_end_marker does
    #[arg(long)]
    require_end_marker: bool,
    /// Exit with 1 on warnings, or when counts would be forgotten
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Lint {
    pub fn run(self) -> CommandResult {
        if let Some(second) = self.more.first() {
            let (first, second) = (self.path.display(), second.display());
            return Err(Failure(format!(
                "lint takes one file or one directory, not `{first}` and `{second}`: name their directory"
            )));
        }
        let bounds = Bounds { max_period: parse_duration(&self.max_period).map_err(Failure)? };
        let (merge_domains, require_end_marker) = (self.merge_domains, self.require_end_marker);
        let rules = Rules { bounds, merge_domains, require_end_marker, ..Rules::default() };
        let loaded = match weir_policy::load(&self.path, &rules) {
            Ok(loaded) => loaded,
            Err(problems) if self.json => {
                let places = problems.0.iter().map(|problem| {
                    serde_json::json!({ "file": problem.file, "line": problem.mark.line, "column": problem.mark.column,
                        "field": problem.field, "message": problem.message })
                });
                say(serde_json::json!({ "valid": false, "errors": places.collect::<Vec<_>>() }))?;
                return Ok(ExitCode::from(2));
            }
            Err(problems) => {
                eprintln!("{problems}");
                return Ok(ExitCode::from(2));
            }
        };
        let mut warnings = lint::warnings(&loaded.policy);
        warnings.extend(loaded.empty.iter().map(|path| format!("{} is empty", path.display())));
        let Changes { forgotten, moved } = match &self.against {
            Some(old) => {
                let old = weir_policy::load(old, &Rules { require_end_marker: false, ..rules })?;
                Changes::between(&old.policy, &loaded.policy)
            }
            None => Changes::default(),
        };
        let (domains, limits) = (loaded.policy.domains().count(), loaded.policy.limit_count());
        if self.json {
            say(serde_json::json!({ "valid": true, "domains": domains, "limits": limits, "warnings": warnings,
                    "skipped": loaded.skipped, "forgotten": self.against.is_some().then_some(&forgotten),
                    "moved": self.against.is_some().then_some(&moved) }))?;
        } else {
            say(format_args!("{}: valid; domains: {domains}, limits: {limits}", self.path.display()))?;
            for skipped in &loaded.skipped {
                say(format_args!("skipped: {}", skipped.display()))?;
            }
            for warning in &warnings {
                say(format_args!("warning: {warning}"))?;
            }
            for line in &moved {
                say(format_args!("moves: {line}"))?;
            }
            for line in &forgotten {
                say(format_args!("forgets: {line}"))?;
            }
            if self.against.is_some() && forgotten.is_empty() {
                say(format_args!("forgets nothing"))?;
            }
        }
        let something = !warnings.is_empty() || !forgotten.is_empty();
        Ok(if self.strict && something { ExitCode::from(NO) } else { ExitCode::SUCCESS })
    }
}
