//! What `weir bench` is told, and whether it makes sense.

use std::{str::FromStr, time::Duration};

use clap::{Args, ValueEnum, value_parser};

use super::{
    checks::{Asked, Distribution, Keys, NUMBER, OwnLimit, Requests},
    report::Made,
    wire::answers::Kind,
    worker::Carried,
};
use crate::{cli::client::Client, domain::time::parse_duration};

/// What callers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Call {
    /// Check: a call for each check
    Unary,
    /// CheckBatch: --batch checks a call
    Batch,
    /// CheckStream: up to --window checks under way on each stream
    Stream,
    /// Envoy's ShouldRateLimit with one descriptor, of any service that has it
    Envoy,
}

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
#[derive(Args)]
pub struct Bench {
    /// What is called
    #[arg(long, value_enum, default_value = "unary", help_heading = "Load")]
    pub call: Call,
    /// Checks of a batch, with --call batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u16).range(1..=1_000), help_heading = "Load")]
    pub batch: u16,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u16).range(1..=10_000), help_heading = "Load")]
    pub connections: u16,
    /// Concurrent calls on each connection
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u16).range(1..=10_000), help_heading = "Load")]
    pub streams: u16,
    /// Checks under way on each stream, with --call stream
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u16).range(1..=10_000), help_heading = "Load")]
    pub window: u16,
    /// Checks a second of an open loop; without it the loop is closed
    #[arg(long, value_name = "CHECKS", value_parser = parse_rate, help_heading = "Load")]
    pub rate: Option<f64>,
    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time, help_heading = "Load")]
    pub duration: Duration,
    /// How long to load the service before
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time, help_heading = "Load")]
    pub warmup: Duration,
    /// Threads of the generator, at most one for each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=256), help_heading = "Load")]
    pub threads: u16,
    /// The key's segments, with `/` between them; in them `{}` stands for a key's number. With --call envoy they are keys
    /// and values in turn [default: user/{}/trade, or user/{} with --call envoy]
    #[arg(long, value_name = "KEY", conflicts_with = "depth", help_heading = "Checks")]
    pub key: Option<String>,
    /// Instead of --key: how many segments a key has, of user/{}/trade/s4/s5…
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(1..=32), help_heading = "Checks")]
    pub depth: Option<u8>,
    /// Different keys
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = value_parser!(u64).range(1..=1_000_000_000_000), help_heading = "Checks")]
    pub keys: u64,
    /// How often each key is asked
    #[arg(long, value_enum, default_value = "uniform", help_heading = "Checks")]
    pub distribution: Distribution,
    /// The exponent of --distribution zipf
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_exponent, help_heading = "Checks")]
    pub exponent: f64,
    /// The domain
    #[arg(long, default_value = "", help_heading = "Checks")]
    pub domain: String,
    /// Units of each check: 1 where nothing is said
    #[arg(long, allow_negative_numbers = true, help_heading = "Checks")]
    pub cost: Option<i64>,
    /// A limit that checks bring along (gcra, as 15/30/1m: a burst of 15 beyond the first, then 30 a minute); without it the
    /// policy decides
    #[arg(long, value_name = "BURST/COUNT/PERIOD", help_heading = "Checks")]
    pub limit: Option<OwnLimit>,
    /// On how many prefixes of the key --limit stands, from the whole key upwards
    #[arg(long, value_name = "N", default_value_t = 1, requires = "limit", value_parser = value_parser!(u8).range(1..=16), help_heading = "Checks")]
    pub levels: u8,
    /// The share of checks to be refused, 0 to 1: they ask other keys, whose limits are used up before the load
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_share, help_heading = "Checks")]
    pub refusals: f64,
    /// Ask for answers without `levels`
    #[arg(long, help_heading = "Checks")]
    pub summary_only: bool,
    /// What random numbers are made from: the same seed, the same checks
    #[arg(long, default_value_t = 1, help_heading = "Checks")]
    pub seed: u64,
    /// How the report is printed
    #[arg(long, value_enum, default_value = "text", help_heading = "Report")]
    pub format: Format,
    /// A line a second on standard error, also where that is no terminal
    #[arg(long, help_heading = "Report")]
    pub live: bool,
    /// The service's process on this machine (Linux): its processor time is told too
    #[arg(long, value_name = "PID", help_heading = "Report")]
    pub server_pid: Option<u32>,
    #[command(flatten)]
    pub client: Client,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        micros if micros <= crate::domain::time::DAY => Ok(Duration::from_micros(micros.unsigned_abs())),
        _ => Err("a load lasts at most a day".to_owned()),
    }
}

fn parse_number(text: &str, is_good: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number| is_good(*number)).ok_or_else(|| wanted.to_owned())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    parse_number(text, |rate| (0.001..=1e8).contains(&rate), "a rate is 0.001 to 100000000 checks a second")
}

fn parse_exponent(text: &str) -> Result<f64, String> {
    parse_number(text, |exponent| exponent > 0.0 && exponent <= 10.0, "an exponent is above 0 and at most 10")
}

fn parse_share(text: &str) -> Result<f64, String> {
    parse_number(text, |share| (0.0..=1.0).contains(&share), "a share is 0 to 1")
}

impl FromStr for OwnLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [burst, count, period] = text.split('/').collect::<Vec<_>>()[..] else {
            return Err("write BURST/COUNT/PERIOD, as in 15/30/1m".to_owned());
        };
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number"));
        Ok(Self { burst: number(burst)?, count: number(count)?, period_us: parse_duration(period)? })
    }
}

/// Most checks that may be under way.
const MAX_UNDER_WAY: usize = 10_000_000;

impl Bench {
    /// The method that is called.
    pub fn method(&self) -> &'static str {
        match self.call {
            Call::Unary | Call::Envoy => self.single_method(),
            Call::Batch => "/weir.v1.RateLimiter/CheckBatch",
            Call::Stream => "/weir.v1.RateLimiter/CheckStream",
        }
    }

    /// The method that asks for one check.
    pub fn single_method(&self) -> &'static str {
        match self.call {
            Call::Envoy => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Call::Unary | Call::Batch | Call::Stream => "/weir.v1.RateLimiter/Check",
        }
    }

    /// How answers are read.
    pub fn kind(&self) -> Kind {
        match self.call {
            Call::Unary | Call::Stream => Kind::Check,
            Call::Batch => Kind::Batch,
            Call::Envoy => Kind::Envoy,
        }
    }

    /// The checks of one call.
    fn checks(&self) -> usize {
        if self.call == Call::Batch { usize::from(self.batch) } else { 1 }
    }

    fn key(&self) -> String {
        match (&self.key, self.depth, self.call) {
            (Some(key), ..) => key.clone(),
            (None, Some(1), _) => NUMBER.to_owned(),
            (None, Some(depth), _) => {
                let deeper = (4..=depth).map(|segment| format!("s{segment}"));
                let named = ["user", NUMBER, "trade"].map(str::to_owned).into_iter().take(usize::from(depth));
                named.chain(deeper).collect::<Vec<_>>().join("/")
            }
            (None, None, Call::Envoy) => format!("user/{NUMBER}"),
            (None, None, _) => format!("user/{NUMBER}/trade"),
        }
    }

    /// What every check says.
    ///
    /// # Errors
    /// A sentence, for what does not go together.
    pub fn asked(&self) -> Result<Asked, String> {
        let asked = Asked {
            domain: self.domain.clone(),
            key: self.key().split('/').map(str::to_owned).collect(),
            cost: self.cost,
            limit: self.limit,
            levels: usize::from(self.levels),
            summary_only: self.summary_only,
        };
        let has_number = asked.key.iter().any(|segment| segment.contains(NUMBER));
        let wrong = if asked.levels > asked.key.len() {
            "--levels is beyond the key's segments"
        } else if !has_number && (self.keys > 1 && self.key.is_some() || self.refusals > 0.0) {
            "the key has no `{}`, so there is only one; add --keys 1, and no --refusals"
        } else if self.refusals > 0.0 && asked.units() < 1 {
            "--refusals needs a --cost of at least 1"
        } else if self.call == Call::Envoy {
            self.wrong_for_envoy(&asked)
        } else {
            ""
        };
        if wrong.is_empty() { Ok(asked) } else { Err(wrong.to_owned()) }
    }

    fn wrong_for_envoy(&self, asked: &Asked) -> &'static str {
        if asked.domain.is_empty() {
            "--call envoy needs a --domain"
        } else if !asked.key.len().is_multiple_of(2) {
            "with --call envoy the key's segments are keys and values in turn: an even number, as user/{}"
        } else if self.limit.is_some() || self.summary_only {
            "--limit and --summary-only are not for --call envoy"
        } else if asked.cost.is_some_and(|cost| u32::try_from(cost).is_err()) {
            "with --call envoy a cost is 0 to 2^32 - 1"
        } else {
            ""
        }
    }

    /// The messages.
    pub fn requests(&self, asked: &Asked) -> Requests {
        let keys = Keys::new(self.keys, self.distribution, self.exponent);
        Requests::new(asked, self.kind(), self.checks(), keys, self.keys, self.refusals)
    }

    /// How the load is carried.
    ///
    /// # Errors
    /// A sentence, for more than can be under way.
    pub fn carried(&self) -> Result<Carried, String> {
        let window = (self.call == Call::Stream).then_some(usize::from(self.window));
        let (connections, streams) = (usize::from(self.connections), usize::from(self.streams));
        if connections * streams * window.unwrap_or(1) > MAX_UNDER_WAY {
            return Err(format!("at most {MAX_UNDER_WAY} checks may be under way: connections x streams x window"));
        }
        if self.duration.is_zero() {
            return Err("a load takes some time: --duration is 0".to_owned());
        }
        Ok(Carried {
            threads: usize::from(self.threads).min(connections),
            connections,
            streams,
            window,
            rate: self.rate.map(|rate| rate / self.checks() as f64),
            warm_up: self.warmup,
            duration: self.duration,
            seed: self.seed,
        })
    }

    /// What the report says of the load.
    pub fn made(&self, carried: &Carried, address: String) -> Made {
        Made {
            address,
            call: match self.call {
                Call::Unary => "unary",
                Call::Batch => "batch",
                Call::Stream => "stream",
                Call::Envoy => "envoy",
            },
            rate: self.rate,
            threads: carried.threads,
            connections: carried.connections,
            streams: carried.streams,
            window: carried.window,
            batch: (self.call == Call::Batch).then_some(self.checks()),
            domain: self.domain.clone(),
            key: self.key(),
            keys: self.keys,
            distribution: match self.distribution {
                Distribution::Uniform => "uniform".to_owned(),
                Distribution::Zipf => format!("zipf {}", self.exponent),
            },
            limit: self.limit.map(|limit| limit.to_string()),
            levels: self.limit.map(|_| usize::from(self.levels)),
            cost: self.cost.unwrap_or(1),
            refusals: self.refusals,
            summary_only: self.summary_only,
            seed: self.seed,
        }
    }
}
