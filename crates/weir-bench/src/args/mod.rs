//! What `weir-bench` is told, and whether it makes sense.

mod checks;
mod load;

use clap::{Parser, ValueEnum};
use weir_server::dial::Options;

pub use self::load::Call;
use self::{checks::CheckArgs, load::LoadArgs};
use super::{checks::Distribution, report::Made, worker::Carried};

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a person
    Text,
    /// One object on one line
    Json,
}

/// Put a service under load, and measure it
///
/// Without --rate the loop is closed: every stream asks for the next thing when it has its answer, which shows how much the
/// service can do. With --rate it is open: checks begin at a fixed rate, whatever becomes of those before, and each latency
/// counts from when its check was meant to begin, which shows what callers would see. docs/benchmarking.md explains both.
///
/// Exit code 0, or 2 where the service cannot be reached or answers nothing but errors. SIGINT ends the load early, with
/// its report.
#[derive(Parser)]
#[command(name = "weir-bench", version)]
pub struct Bench {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub checks: CheckArgs,
    /// How the report is printed
    #[arg(long, value_enum, default_value = "text", help_heading = REPORT)]
    pub format: Format,
    /// A line a second on standard error, also where that is no terminal
    #[arg(long, help_heading = REPORT)]
    pub live: bool,
    /// The service's process on this machine (Linux): its processor time is told too
    #[arg(long, value_name = "PID", help_heading = REPORT)]
    pub server_pid: Option<u32>,
    #[command(flatten)]
    pub client: Options,
}

/// The options of the report in the help.
const REPORT: &str = "Report";

fn parse_number(text: &str, is_good: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number| is_good(*number)).ok_or_else(|| wanted.to_owned())
}

impl Bench {
    /// What the report says of the load.
    pub fn made(&self, carried: &Carried, address: String) -> Made {
        Made {
            address,
            call: match self.load.call {
                Call::Unary => "unary",
                Call::Batch => "batch",
                Call::Stream => "stream",
                Call::Envoy => "envoy",
            },
            rate: self.load.rate,
            threads: carried.threads,
            connections: carried.connections,
            streams: carried.streams,
            window: carried.window,
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
