//! `weir reset`

use std::process::ExitCode;

use clap::Args;

use super::{CommandResult, block_on, client::Client, out::say};
use crate::proto::{ResetRequest, rate_limiter_client::RateLimiterClient};

/// Reset a key: forget its counts
#[derive(Args)]
pub struct Reset {
    /// The key's segments, root first
    #[arg(required = true, value_name = "KEY")]
    key: Vec<String>,
    /// The domain of the key
    #[arg(long, default_value = "")]
    domain: String,
    /// Also reset every key below it
    #[arg(long)]
    subtree: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Reset {
    pub fn run(self) -> CommandResult {
        let path = self.key.join(" / ");
        let request = ResetRequest { domain: self.domain, key: self.key, subtree: self.subtree };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            self.client.call(service.reset(request)).await
        })?;
        if self.json {
            say(serde_json::json!({ "existed": answer.existed, "scanned": answer.scanned }))?;
        } else {
            let below = if self.subtree { " and every key below it" } else { "" };
            let existed = if answer.existed { "it had state" } else { "it had no state of its own" };
            let scanned = if answer.scanned { "; keys written meanwhile may remain" } else { "" };
            say(format_args!("reset {path}{below}; {existed}{scanned}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
