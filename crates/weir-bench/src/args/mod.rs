//! Command-line options.

mod checks;
mod load;

use clap::{Parser, ValueEnum};
use weir_server::dial::Options;

pub(crate) use self::load::Call;
use self::{checks::CheckArgs, load::LoadArgs};
use super::{checks::Distribution, report::LoadInfo, worker::Load};

/// The format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Readable text
    Text,
    /// One JSON object on one line
    Json,
}

/// Put a service under load, and measure it
///
/// Without --rate the loop is closed: every stream sends its next check when it has an answer, which shows the maximum
/// throughput of the service. With --rate it is open: checks start at a fixed rate that does not depend on answers, and latency
/// counts from when a check was due, which shows what clients would see. docs/benchmarking.md explains both.
///
/// Exit code 0, or 2 if the service cannot be reached or answers only with errors. SIGINT ends the load early, with a
/// report.
#[derive(Parser)]
#[command(name = "weir-bench", version)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text", help_heading = REPORT)]
    pub format: Format,
    /// Print a line a second on standard error even if that is not a terminal
    #[arg(long, help_heading = REPORT)]
    pub live: bool,
    /// Process ID of the service on this machine (Linux), to measure its CPU time
    #[arg(long, value_name = "PID", help_heading = REPORT)]
    pub server_pid: Option<u32>,
    #[command(flatten)]
    pub client: Options,
}

/// The heading of the report options in the help.
const REPORT: &str = "Report";

fn parse_number(text: &str, is_good: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number| is_good(*number)).ok_or_else(|| wanted.to_owned())
}

impl Bench {
    /// Returns the parameters of the load for the report.
    pub(crate) fn info(&self, load: &Load, address: String) -> LoadInfo {
        LoadInfo {
            address,
            call: match self.load.call {
                Call::Unary => "unary",
                Call::Batch => "batch",
                Call::Stream => "stream",
                Call::Envoy => "envoy",
            },
            rate: self.load.rate,
            threads: load.threads,
            connections: load.connections,
            streams: load.streams,
            window: load.window,
            batch: (self.load.call == Call::Batch).then_some(self.load.checks()),
            domain: self.checks.domain.clone(),
            key: self.checks.key(self.load.call),
            keys: self.checks.keys(self.load.call),
            distribution: match self.checks.distribution {
                Distribution::Uniform => "uniform".to_owned(),
                Distribution::Zipf => format!("zipf {}", self.checks.exponent),
            },
            limit: self.checks.limit.map(|limit| limit.to_string()),
            levels: self.checks.limit.map(|_| usize::from(self.checks.levels)),
            cost: self.checks.cost.unwrap_or(1),
            refusals: self.checks.refusals,
            summary_only: self.checks.summary_only,
            seed: self.checks.seed,
        }
    }
}
