//! `weir completions`

use std::{io::Write, process::ExitCode};

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::{Cli, CommandResult, out::Out};

/// Print the completion script of a shell
///
/// Bash: `source <(weir completions bash)`. Zsh: `weir completions zsh >"${fpath[1]}/_weir"`. Fish: `weir completions
/// fish >~/.config/fish/completions/weir.fish`.
#[derive(Args)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> CommandResult {
        // Written in one call, since `generate` panics if a write fails.
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), "weir", &mut script);
        Out::new().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
