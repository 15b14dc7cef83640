//! `weir limits diff`

use std::{io, path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::{Value, json};
use weir_policy::{Diff, Difference, lint::Changes};

use super::{CommandResult, EXIT_NO, out::print_line, rules::RulesArgs};

/// Compare two policies: the limits of keys, and lost counts
///
/// Exit code 0: both say the same; 1: they differ; 2: an error.
#[derive(Args)]
pub(super) struct Compare {
    /// The older policy: a file, or a directory of them
    old: PathBuf,
    /// The newer policy
    new: PathBuf,
    #[command(flatten)]
    rules: RulesArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub(super) fn run(self) -> CommandResult {
        let rules = self.rules.rules()?;
        let [old, new] = [&self.old, &self.new].map(|path| weir_policy::load(path, &rules));
        let (old, new) = (old?.policy, new?.policy);
        let (diff, changes) = (Diff::between(&old, &new), Changes::between(&old, &new));
        // Then a count at most continues at another place in the file.
        let is_same = diff.all().next().is_none() && changes.forgotten.is_empty();
        if self.json {
            let differences: Vec<_> = diff.all().map(|(sign, difference)| as_json(sign, difference)).collect();
            print_line(json!({ "differences": differences, "moved": changes.moved, "forgotten": changes.forgotten }))?;
        } else if is_same && changes.moved.is_empty() {
            print_line(format_args!("no difference"))?;
        } else {
            diff.all().try_for_each(|(sign, difference)| print(sign, difference))?;
            print_changes(&changes)?;
        }
        Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) })
    }
}

fn print(sign: char, Difference { name, before, after, key_effects, .. }: &Difference) -> io::Result<()> {
    let arrow = if before.is_empty() || after.is_empty() || before == after { "" } else { " -> " };
    // The name of a domain is enough: the lines below list the settings that differ.
    let is_limit = name.contains(':');
    let after = if before == after { "" } else { after };
    match (sign, is_limit) {
        ('~', false) => print_line(format_args!("~ {name}"))?,
        _ => print_line(format_args!("{sign} {name}: {before}{arrow}{after}"))?,
    }
    key_effects.iter().try_for_each(|line| print_line(format_args!("    {line}")))
}

fn as_json(sign: char, difference: &Difference) -> Value {
    let Difference { name, before, after, key_effects, effect } = difference;
    let kind = match sign {
        '+' => "added",
        '-' => "removed",
        _ => "changed",
    };
    let said = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    let effect = effect.map(|effect| json!({ "at_once": effect.at_once, "per_second": effect.per_second }));
    json!({ "kind": kind, "name": name, "before": said(before), "after": said(after), "means": key_effects, "effect": effect })
}

/// Prints which counts move to another limit, and which are lost.
pub(super) fn print_changes(Changes { moved, forgotten }: &Changes) -> io::Result<()> {
    for line in moved {
        print_line(format_args!("moves: {line}"))?;
    }
    for line in forgotten {
        print_line(format_args!("forgets: {line}"))?;
    }
    if forgotten.is_empty() {
        print_line(format_args!("forgets nothing"))?;
    }
    Ok(())
}
