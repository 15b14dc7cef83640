//! The options of the load: calls, callers, duration.

use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use weir_core::domain::time::{DAY, parse_duration};

use super::parse_number;
use crate::{wire::answers::Kind, worker::Load};

/// The call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Call {
    /// Check: a call for each check
    Unary,
    /// CheckBatch: --batch checks a call
    Batch,
    /// CheckStream: up to --window checks in flight on each stream
    Stream,
    /// Envoy's ShouldRateLimit with one descriptor, of any service that implements it
    Envoy,
}

/// Maximum number of checks in flight.
const MAX_IN_FLIGHT: usize = 10_000_000;

#[derive(Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// The call to make
    #[arg(long, value_enum, default_value = "unary")]
    pub call: Call,
    /// Checks of a batch, with --call batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u16).range(1..=1_000))]
    pub batch: u16,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u16).range(1..=10_000))]
    pub connections: u16,
    /// Concurrent calls on each connection
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u16).range(1..=10_000))]
    pub streams: u16,
    /// Checks in flight on each stream, with --call stream
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u16).range(1..=10_000))]
    pub window: u16,
    /// Checks a second, in an open loop; without it the loop is closed
    #[arg(long, value_name = "CHECKS", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Duration of the measurement
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub duration: Duration,
    /// Duration of the warm-up before it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub warmup: Duration,
    /// Threads of the generator, at most one for each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=256))]
    pub threads: u16,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        micros if micros <= DAY => Ok(Duration::from_micros(micros.unsigned_abs())),
        _ => Err("a load may last at most a day".to_owned()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    parse_number(text, |rate| (0.001..=1e8).contains(&rate), "a rate must be 0.001 to 100000000 checks a second")
}

impl Call {
    /// Returns the path of the method.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Call::Unary | Call::Envoy => self.single_method(),
            Call::Batch => "/weir.v1.RateLimiter/CheckBatch",
            Call::Stream => "/weir.v1.RateLimiter/CheckStream",
        }
    }

    /// Returns the path of the method with a single check.
    pub(crate) fn single_method(self) -> &'static str {
        match self {
            Call::Envoy => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Call::Unary | Call::Batch | Call::Stream => "/weir.v1.RateLimiter/Check",
        }
    }

    /// Returns the type of answers.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Call::Unary | Call::Stream => Kind::Check,
            Call::Batch => Kind::Batch,
            Call::Envoy => Kind::Envoy,
        }
    }
}

impl LoadArgs {
    /// Returns the number of checks in a call.
    pub(crate) fn checks(&self) -> usize {
        if self.call == Call::Batch { usize::from(self.batch) } else { 1 }
    }

    /// Returns the parameters of the load; `seed` is for its random numbers.
    ///
    /// # Errors
    /// A sentence, for too many checks in flight or a duration of 0.
    pub(crate) fn load(&self, seed: u64) -> Result<Load, String> {
        let window = (self.call == Call::Stream).then_some(usize::from(self.window));
        let (connections, streams) = (usize::from(self.connections), usize::from(self.streams));
        if connections * streams * window.unwrap_or(1) > MAX_IN_FLIGHT {
            return Err(format!("at most {MAX_IN_FLIGHT} checks may be in flight: connections x streams x window"));
        }
        if self.duration.is_zero() {
            return Err("--duration must be above 0".to_owned());
        }
        Ok(Load {
            threads: usize::from(self.threads).min(connections),
            connections,
            streams,
            window,
            rate: self.rate.map(|rate| rate / self.checks() as f64),
            warm_up: self.warmup,
            duration: self.duration,
            seed,
        })
    }
}
