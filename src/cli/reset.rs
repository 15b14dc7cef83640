//! `weir reset`

use std::process::ExitCode;

use clap::Args;

use super::{CommandResult, block_on, client::Client, hint, out::say};
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
        hint::check_expansion(&self.key)?;
        let (domain, key, path) = (self.domain.clone(), self.key.clone(), self.key.join(" / "));
        let request = ResetRequest { domain: self.domain, key: self.key, subtree: self.subtree };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            let answer = service.reset(request).await.map_err(|status| self.client.failure(&status))?.into_inner();
            if !answer.existed && !self.subtree {
                hint::warn_of_unlimited(&mut service, &domain, &key).await;
            }
            Ok(answer)
        })?;
        if self.json {
            say(serde_json::json!({ "existed": answer.existed, "scanned": answer.scanned }))?;
        } else {
            let scanned = if answer.scanned { "; keys written meanwhile may remain" } else { "" };
            match (answer.existed, self.subtree) {
                (true, false) => say(format_args!("reset {path}; it had state"))?,
                (false, false) => say(format_args!("nothing to reset: {path} had no state"))?,
                (existed, true) => {
                    let existed = if existed { "it had state" } else { "it had no state of its own" };
                    say(format_args!("reset {path} and every key below it; {existed}{scanned}"))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
