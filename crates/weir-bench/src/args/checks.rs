//! What is asked.

use std::str::FromStr;

use clap::{Args, value_parser};
use rand_distr::ZipfError;
use weir_core::domain::time::parse_duration;

use super::{Call, parse_number};
use crate::checks::{Asked, Distribution, Keys, NUMBER, OwnLimit, Requests};

/// How many keys there are where nothing is said.
const KEYS: u64 = 1_000;

#[derive(Args)]
#[command(next_help_heading = "Checks")]
pub struct CheckArgs {
    /// The key's segments, with `/` between them; in them `{}` stands for a key's number. With --call envoy they are keys
    /// and values in turn [default: user/{}/trade, or user/{} with --call envoy]
    #[arg(long, value_name = "KEY", conflicts_with = "depth")]
    pub key: Option<String>,
    /// Instead of --key: how many segments a key has, of user/{}/trade/s4/s5…
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(1..=32))]
    pub depth: Option<u8>,
    /// Different keys [default: 1000, or 1 where the key has no `{}`]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=1_000_000_000_000))]
    pub keys: Option<u64>,
    /// How often each key is asked
    #[arg(long, value_enum, default_value = "uniform")]
    pub distribution: Distribution,
    /// The exponent of --distribution zipf
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_exponent)]
    pub exponent: f64,
    /// The domain
    #[arg(long, default_value = "")]
    pub domain: String,
    /// Units of each check: 1 where nothing is said
    #[arg(long, allow_negative_numbers = true)]
    pub cost: Option<i64>,
    /// A limit that checks bring along (gcra, as 15/30/1m: a burst of 15 beyond the first, then 30 a minute); without it the
    /// policy decides
    #[arg(long, value_name = "BURST/COUNT/PERIOD")]
    pub limit: Option<OwnLimit>,
    /// On how many prefixes of the key --limit stands, from the whole key upwards
    #[arg(long, value_name = "N", default_value_t = 1, requires = "limit", value_parser = value_parser!(u8).range(1..=16))]
    pub levels: u8,
    /// The share of checks to be refused, 0 to 1: they ask other keys, whose limits are used up before the load
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_share)]
    pub refusals: f64,
    /// Ask for answers without `levels`
    #[arg(long)]
    pub summary_only: bool,
    /// What random numbers are made from: the same seed, the same checks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
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

impl CheckArgs {
    /// The key, in which [`NUMBER`] stands for the number.
    pub fn key(&self, call: Call) -> String {
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

    /// How many keys there are.
    pub fn keys(&self, call: Call) -> u64 {
        self.keys.unwrap_or(if self.key(call).contains(NUMBER) { KEYS } else { 1 })
    }

    /// What every check says.
    ///
    /// # Errors
    /// A sentence, for what does not go together.
    pub fn asked(&self, call: Call) -> Result<Asked, String> {
        let asked = Asked {
            domain: self.domain.clone(),
            key: self.key(call).split('/').map(str::to_owned).collect(),
            cost: self.cost,
            limit: self.limit,
            levels: usize::from(self.levels),
            summary_only: self.summary_only,
        };
        let wrong = if asked.levels > asked.key.len() {
            "--levels is beyond the key's segments"
        } else if !self.key(call).contains(NUMBER) && (self.keys > Some(1) || self.refusals > 0.0) {
            "the key has no `{}`, so there is only one: no --keys and no --refusals"
        } else if self.refusals > 0.0 && asked.units() < 1 {
            "--refusals needs a --cost of at least 1"
        } else if call == Call::Envoy {
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

    /// The messages of calls with so many checks each.
    ///
    /// # Errors
    /// For keys that cannot be drawn so.
    pub fn requests(&self, asked: &Asked, call: Call, checks: usize) -> Result<Requests, ZipfError> {
        let count = self.keys(call);
        let keys = Keys::new(count, self.distribution, self.exponent)?;
        Ok(Requests::new(asked, call.kind(), checks, keys, count, self.refusals))
    }
}
