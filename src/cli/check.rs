//! `weir check`

use std::process::ExitCode;

use clap::Args;
use weir_core::domain::time::parse_duration;

use super::{CommandResult, Failure, NO, block_on, client::Client, out::say, render::Decided};
use crate::proto::{CheckRequest, rate_limiter_client::RateLimiterClient};

/// Check whether a request is allowed, and charge it
///
/// The key is a path, root first: `weir check user alex trade`. Exit code 0: allowed; 1: refused; 2: an error. A cost of 0
/// peeks; a negative cost refunds.
#[derive(Args)]
pub struct Check {
    /// The key's segments, root first
    #[arg(required = true, value_name = "KEY")]
    key: Vec<String>,
    /// The domain whose policy decides
    #[arg(long, default_value = "")]
    domain: String,
    /// Units to charge
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    cost: i64,
    /// Divides the limits: 0.5 allows twice as much, 0 is unlimited
    #[arg(long, allow_negative_numbers = true)]
    factor: Option<f64>,
    /// Longest wait to accept from shaping limits
    #[arg(long, value_name = "TIME")]
    max_wait: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Check {
    pub fn run(self) -> CommandResult {
        let max_wait = self.max_wait.as_deref().map(parse_duration).transpose().map_err(Failure)?;
        let request = CheckRequest {
            domain: self.domain,
            key: self.key,
            cost: Some(self.cost),
            factor: self.factor,
            max_wait: max_wait.map(|micros| prost_types::Duration {
                seconds: micros / 1_000_000,
                nanos: (micros % 1_000_000 * 1_000) as i32,
            }),
            ..Default::default()
        };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            self.client.call(service.check(request)).await
        })?;
        let decided = Decided::from(answer);
        if self.json {
            say(serde_json::to_string(&decided)?)?;
        } else {
            say(decided.text().trim_end())?;
        }
        Ok(if decided.summary.decision.allowed { ExitCode::SUCCESS } else { ExitCode::from(NO) })
    }
}
