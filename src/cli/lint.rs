//! `weir limits lint`

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use weir_policy::{
    Rules,
    lint::{self, Changes},
};
use weir_settings::{Problem, Problems};

use super::{
    CommandResult, EXIT_NO, Failure,
    diff::print_changes,
    out::{print_error, print_line},
    policy_tests,
    rules::RulesArgs,
};

/// Check policy files, and run the tests in them
///
/// Prints every error with file, line and column, then warnings. Exit code 0: valid; 1: warnings, with --strict; 2: not
/// valid, or a test failed.
#[derive(Args)]
pub(super) struct Lint {
    /// A policy file, or a directory of them
    path: PathBuf,
    /// What a shell makes of an unquoted `*`
    #[arg(hide = true)]
    more: Vec<PathBuf>,
    /// Compare with this older policy: print which counts the change would forget, and which limits keep theirs
    #[arg(long, value_name = "OLD")]
    against: Option<PathBuf>,
    #[command(flatten)]
    rules: RulesArgs,
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
    pub(super) fn run(self) -> CommandResult {
        if let Some(second) = self.more.first() {
            let (first, second) = (self.path.display(), second.display());
            return Err(Failure(format!(
                "lint takes one file or one directory, not `{first}` and `{second}`: name their directory"
            )));
        }
        let mut rules = self.rules.rules()?;
        rules.require_end_marker |= self.require_end_marker;
        let loaded = match weir_policy::load(&self.path, &rules) {
            Ok(loaded) => loaded,
            Err(problems) => return self.invalid(&problems),
        };
        let tests = match policy_tests::run(&loaded.policy, &loaded.tests, &rules.bounds) {
            Ok(report) => report,
            Err(problems) => return self.invalid(&problems),
        };
        let warnings = lint::warnings(&loaded.policy);
        let changes = match &self.against {
            Some(old) => match weir_policy::load(old, &Rules { require_end_marker: false, ..rules }) {
                Ok(old) => Changes::between(&old.policy, &loaded.policy),
                Err(problems) => return self.invalid(&problems),
            },
            None => Changes::default(),
        };
        let (domains, limits) = (loaded.policy.domains().count(), loaded.policy.limit_count());
        let has_tests = tests.passed + tests.failed > 0;
        if self.json {
            let Changes { forgotten, moved } = &changes;
            let skipped: Vec<_> = loaded.skipped.iter().map(|path| shown(path)).collect();
            let mut report = serde_json::json!({ "valid": true, "domains": domains, "limits": limits, "warnings": warnings,
                    "skipped": skipped, "forgotten": self.against.is_some().then_some(forgotten),
                    "moved": self.against.is_some().then_some(moved) });
            if has_tests {
                report["tests"] = serde_json::json!({ "passed": tests.passed, "failed": tests.failed,
                    "failures": places(&tests.failures) });
            }
            print_line(report)?;
        } else {
            print_line(format_args!("{}: valid; domains: {domains}, limits: {limits}", self.path.display()))?;
            for skipped in &loaded.skipped {
                print_line(format_args!("skipped: {}", skipped.display()))?;
            }
            for warning in &warnings {
                print_line(format_args!("warning: {warning}"))?;
            }
            if self.against.is_some() {
                print_changes(&changes)?;
            }
            if has_tests {
                print_line(format_args!("tests: {} passed, {} failed", tests.passed, tests.failed))?;
            }
            if tests.failed > 0 {
                print_error(&tests.failures);
            }
        }
        let something = !warnings.is_empty() || !changes.forgotten.is_empty();
        Ok(match (tests.failed, self.strict && something) {
            (1.., _) => ExitCode::from(2),
            (0, true) => ExitCode::from(EXIT_NO),
            (0, false) => ExitCode::SUCCESS,
        })
    }

    fn invalid(&self, problems: &Problems) -> CommandResult {
        if self.json {
            print_line(serde_json::json!({ "valid": false, "errors": places(problems) }))?;
        } else {
            print_error(problems);
        }
        Ok(ExitCode::from(2))
    }
}

/// Returns a path for JSON, with invalid UTF-8 replaced.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn places(problems: &Problems) -> Vec<serde_json::Value> {
    let place = |problem: &Problem| {
        serde_json::json!({ "file": shown(&problem.file), "line": problem.mark.line, "column": problem.mark.column,
            "field": problem.field, "message": problem.message })
    };
    problems.0.iter().map(place).collect()
}
