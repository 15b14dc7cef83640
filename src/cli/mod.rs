//! The command line: one file for each command.

// They panic if the stream is closed or its disk full; `out` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod check;
mod client;
mod completions;
mod config;
mod diff;
mod explain;
mod health;
mod hint;
mod holds;
mod key;
mod key_rows;
mod keys;
mod lint;
mod migrate;
mod out;
mod overrides;
mod policy_tests;
mod render;
mod replicas;
mod reservations;
mod reset;
mod rules;
mod schema;
mod serve;
mod signals;
// Fuzz targets use its parsers.
#[doc(hidden)]
pub mod simulate;
mod token;
mod usage;

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use weir_server::cli::Failure;

use crate::{
    app::AppError,
    config::{ConfigError, FILE_VARIABLE, Flags, SettingOrigins, Settings},
    telemetry,
};

/// A rate-limit service: nested limits, decided exactly, over gRPC.
///
/// Without a command: `weir serve`, with the settings in config/weir.yaml if there is such a file.
#[derive(Parser)]
#[command(name = "weir", version, propagate_version = true, disable_help_subcommand = true)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    serve: serve::Serve,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Reserve(reservations::Reserve),
    Commit(reservations::Commit),
    Cancel(reservations::Cancel),
    Extend(reservations::Extend),
    Reset(reset::Reset),
    Keys(keys::Keys),
    Usage(usage::Usage),
    Holds(holds::Holds),
    Replicas(replicas::Replicas),
    #[command(subcommand)]
    Override(overrides::Override),
    Overrides(overrides::List),
    Ban(overrides::Ban),
    Unban(overrides::End),
    Audit(overrides::Audit),
    Health(health::Health),
    Token(token::Token),
    /// Check settings without a server
    #[command(subcommand)]
    Config(Config),
    /// Check policy files without a server
    #[command(subcommand)]
    Limits(Limits),
    #[command(subcommand)]
    Schema(schema::Schema),
    Simulate(simulate::Simulate),
    /// Import configuration from another service
    #[command(subcommand)]
    Migrate(Migrate),
    Completions(completions::Completions),
}

#[derive(Subcommand)]
enum Config {
    Check(config::Check),
}

#[derive(Subcommand)]
enum Limits {
    Lint(lint::Lint),
    Explain(explain::Explain),
    Diff(diff::Compare),
}

#[derive(Subcommand)]
enum Migrate {
    EnvoyRatelimit(migrate::EnvoyRatelimit),
}

/// Where the settings of a service come from: a file, the environment, flags.
#[derive(Args)]
struct SettingsArgs {
    /// The settings file; overrides the variable WEIR_CONFIG
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The policy: a YAML file or a directory of them
    #[arg(long, value_name = "PATH")]
    limits: Option<PathBuf>,
    /// Serve without a policy: every check without its own limits is allowed
    #[arg(long, conflicts_with = "limits")]
    allow_all: bool,
    /// The store: memory, redis://, rediss://, redis+unix://, redis-sentinel:// or redis-cluster://
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl SettingsArgs {
    /// Returns the settings file. Clap cannot read the variable: an empty one would fail every command.
    fn file(&self) -> Option<PathBuf> {
        let of_variable = || env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(of_variable)
    }

    fn load(self) -> Result<(Settings, SettingOrigins), ConfigError> {
        let file = self.file();
        let flags = Flags { limits: self.limits, allow_all: self.allow_all, store: self.store };
        Settings::load_with_origins(file.as_deref(), variables(), &flags)
    }
}

/// Formats why a service cannot start, after the position of the setting; `limits` is the path of its policy.
fn located(error: &AppError, limits: &Path, origins: &SettingOrigins) -> String {
    match error {
        AppError::Policy(problems) => match problems.0.as_slice() {
            [problem] if problem.file == limits => origins.locate(&format!("limits: {problem}")),
            _ => problems.to_string(),
        },
        error => origins.locate(&error.to_string()),
    }
}

/// The settings file that is used without a command, if it exists.
const QUICK_START: &str = "config/weir.yaml";
/// The name of envoyproxy/ratelimit's program. Under it, this program is configured by that service's environment
/// variables.
const RATELIMIT: &str = "ratelimit";

/// Runs the command that the arguments name. Exit codes: 0: yes; 1: no (refused, not serving); 2: an error.
pub fn run() -> ExitCode {
    let outcome = if is_named(RATELIMIT) { migrate::serve_drop_in() } else { run_command(Cli::parse()) };
    match outcome {
        Ok(code) => {
            telemetry::tracing::flush();
            code
        }
        Err(Failure(message)) => {
            telemetry::tracing::end_with(&format!("weir: {message}"));
            ExitCode::from(2)
        }
    }
}

/// Whether the program was started under this name.
fn is_named(name: &str) -> bool {
    env::args_os().next().is_some_and(|program| Path::new(&program).file_name() == Some(OsStr::new(name)))
}

fn run_command(Cli { serve, command }: Cli) -> CommandResult {
    match command {
        None => serve.or_configured_by(Path::new(QUICK_START)).run(),
        Some(Command::Serve(command)) => command.run(),
        Some(Command::Check(command)) => command.run(),
        Some(Command::Reserve(command)) => command.run(),
        Some(Command::Commit(command)) => command.run(),
        Some(Command::Cancel(command)) => command.run(),
        Some(Command::Extend(command)) => command.run(),
        Some(Command::Reset(command)) => command.run(),
        Some(Command::Keys(command)) => command.run(),
        Some(Command::Usage(command)) => command.run(),
        Some(Command::Holds(command)) => command.run(),
        Some(Command::Replicas(command)) => command.run(),
        Some(Command::Override(command)) => command.run(),
        Some(Command::Overrides(command)) => command.run(),
        Some(Command::Ban(command)) => command.run(),
        Some(Command::Unban(command)) => command.run(),
        Some(Command::Audit(command)) => command.run(),
        Some(Command::Health(command)) => command.run(),
        Some(Command::Token(command)) => command.run(),
        Some(Command::Config(Config::Check(command))) => command.run(),
        Some(Command::Limits(Limits::Lint(command))) => command.run(),
        Some(Command::Limits(Limits::Explain(command))) => command.run(),
        Some(Command::Limits(Limits::Diff(command))) => command.run(),
        Some(Command::Schema(command)) => command.run(),
        Some(Command::Simulate(command)) => command.run(),
        Some(Command::Completions(command)) => command.run(),
        Some(Command::Migrate(Migrate::EnvoyRatelimit(command))) => command.run(),
    }
}

/// The exit code for "no".
const EXIT_NO: u8 = 1;

type CommandResult = Result<ExitCode, Failure>;

/// Returns the environment variables. A value that is not UTF-8 is reported as an invalid value of its variable, not
/// ignored.
fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

/// Runs a future to its end, on a separate runtime.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}
