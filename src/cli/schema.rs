//! `weir schema`

use std::process::ExitCode;

use clap::Subcommand;

use super::{CommandResult, out::print_line};

/// Print a JSON Schema (2020-12), for editors that check and complete YAML
///
/// Save it next to the YAML file, and start that file with the line `# yaml-language-server: $schema=FILE`.
#[derive(Subcommand)]
pub(super) enum Schema {
    /// The schema of policy files in the native format
    Policy,
    /// The schema of the settings file
    Settings,
}

impl Schema {
    pub(super) fn run(self) -> CommandResult {
        let text = match self {
            Self::Policy => include_str!("../../config/policy.schema.json"),
            Self::Settings => include_str!("../../config/settings.schema.json"),
        };
        print_line(text.trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}
