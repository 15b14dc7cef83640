//! `weir migrate`

mod drop_in;
mod environment;
mod redis;
mod table;
mod times;
mod tracing;
mod translate;
mod translation;
mod xds;

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use weir_settings::file;

use super::{
    CommandResult, Failure,
    out::{Out, print_error},
    variables,
};
pub(super) use drop_in::serve_drop_in;
use environment::Environment;

/// Maximum size of the variables, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Convert the environment variables of envoyproxy/ratelimit to a weir.yaml
///
/// The variables are those of this process, or of a file: lines NAME=value, or YAML with the list `env` of a container.
/// Variables without an equivalent, variables that are not needed, and manual steps are listed at the end and on standard
/// error. Passwords are not printed. docs/envoy.md has the table of all variables.
#[derive(Args)]
pub(super) struct EnvoyRatelimit {
    /// Read the variables from this file; `-`: from standard input
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

impl EnvoyRatelimit {
    pub(super) fn run(self) -> CommandResult {
        let environment = match &self.env_file {
            None => Environment::of_process(variables()),
            Some(path) => {
                let wrong = |cause: String| Failure(format!("{}: {cause}", path.display()));
                let text = if path.as_os_str() == "-" {
                    io::read_to_string(io::stdin().take(MAX_BYTES))
                } else {
                    file::read_text(path, MAX_BYTES)
                };
                Environment::of_text(&text.map_err(|error| wrong(error.to_string()))?).map_err(wrong)?
            }
        };
        let translation = translate::translate(&environment).map_err(Failure)?;
        write!(Out::new(), "{translation}")?;
        for (heading, entries) in translation.notes() {
            if !entries.is_empty() {
                print_error(heading);
            }
            for entry in entries {
                print_error(format_args!("  {entry}"));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
