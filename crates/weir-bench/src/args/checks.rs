//! The options of checks.

use std::str::FromStr;

use clap::{Args, value_parser};
use rand_distr::ZipfError;
use weir_core::domain::time::parse_duration;

use super::{Call, parse_number};
use crate::checks::{CheckSpec, Distribution, Keys, NUMBER, OwnLimit, Requests};

/// Default number of keys.
const KEYS: u64 = 1_000;

#[derive(Args)]
#[command(next_help_heading = "Checks")]
pub(crate) struct CheckArgs {
    /// The key's segments, separated by `/`; `{}` is replaced by a number. With --call envoy they
    /// are alternately keys and values [default: user/{}/trade, or user/{} with --call envoy]
    #[arg(long, value_name = "KEY", conflicts_with = "depth")]
    pub key: Option<String>,
    /// Instead of --key: the number of segments of a key like user/{}/trade/s4/s5…
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(1..=32))]
    pub depth: Option<u8>,
    /// Number of keys [default: 1000, or 1 if the key has no `{}`]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=1_000_000_000_000))]
    pub keys: Option<u64>,
    /// The distribution of checks over keys
    #[arg(long, value_enum, default_value = "uniform")]
    pub distribution: Distribution,
    /// The exponent of --distribution zipf
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_exponent)]
    pub exponent: f64,
    /// The domain
    #[arg(long, default_value = "")]
    pub domain: String,
    /// Units of each check [default: 1]
    #[arg(long, allow_negative_numbers = true)]
    pub cost: Option<i64>,
    /// A gcra limit in each request (15/30/1m: a burst of 15 beyond the first, then 30 a minute); without it the policy
    /// decides
    #[arg(long, value_name = "BURST/COUNT/PERIOD")]
    pub limit: Option<OwnLimit>,
    /// How many levels have --limit, from the whole key upwards
    #[arg(long, value_name = "N", default_value_t = 1, requires = "limit", value_parser = value_parser!(u8).range(1..=16))]
    pub levels: u8,
    /// The share of checks to be refused, 0 to 1: they have other keys, whose limits are exhausted before the load
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_share)]
    pub refusals: f64,
    /// Ask for answers without `levels`
    #[arg(long)]
    pub summary_only: bool,
    /// Seed of random numbers: the same seed makes the same checks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn parse_exponent(text: &str) -> Result<f64, String> {
    parse_number(text, |exponent| exponent > 0.0 && exponent <= 10.0, "an exponent must be above 0 and at most 10")
}

fn parse_share(text: &str) -> Result<f64, String> {
    parse_number(text, |share| (0.0..=1.0).contains(&share), "a share must be 0 to 1")
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

impl CheckArgs {
    /// Returns the key, with [`NUMBER`] as placeholder.
    pub(crate) fn key(&self, call: Call) -> String {
        match (&self.key, self.depth, call) {
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

    /// Returns the number of keys.
    pub(crate) fn keys(&self, call: Call) -> u64 {
        self.keys.unwrap_or(if self.key(call).contains(NUMBER) { KEYS } else { 1 })
    }

    /// Returns what all checks have in common.
    ///
    /// # Errors
    /// A sentence, for options that contradict each other.
    pub(crate) fn spec(&self, call: Call) -> Result<CheckSpec, String> {
        let spec = CheckSpec {
            domain: self.domain.clone(),
            key: self.key(call).split('/').map(str::to_owned).collect(),
            cost: self.cost,
            limit: self.limit,
            levels: usize::from(self.levels),
            summary_only: self.summary_only,
        };
        let wrong = if spec.levels > spec.key.len() {
            "--levels exceeds the key's segments"
        } else if !self.key(call).contains(NUMBER) && (self.keys > Some(1) || self.refusals > 0.0) {
            "--keys and --refusals need a `{}` in the key"
        } else if self.refusals > 0.0 && spec.units() < 1 {
            "--refusals needs a --cost of at least 1"
        } else if call == Call::Envoy {
            self.wrong_for_envoy(&spec)
        } else {
            ""
        };
        if wrong.is_empty() { Ok(spec) } else { Err(wrong.to_owned()) }
    }

    fn wrong_for_envoy(&self, spec: &CheckSpec) -> &'static str {
        if spec.domain.is_empty() {
            "--call envoy needs a --domain"
        } else if !spec.key.len().is_multiple_of(2) {
            "with --call envoy the key's segments are keys and values in turn: an even number, as user/{}"
        } else if self.limit.is_some() || self.summary_only {
            "--limit and --summary-only are not for --call envoy"
        } else if spec.cost.is_some_and(|cost| u32::try_from(cost).is_err()) {
            "with --call envoy a cost must be 0 to 2^32 - 1"
        } else {
            ""
        }
    }

    /// Makes requests of `checks` checks each.
    ///
    /// # Errors
    /// An invalid distribution.
    pub(crate) fn requests(&self, spec: &CheckSpec, call: Call, checks: usize) -> Result<Requests, ZipfError> {
        let count = self.keys(call);
        let keys = Keys::new(count, self.distribution, self.exponent)?;
        Ok(Requests::new(spec, call.kind(), checks, keys, count, self.refusals))
    }
}
