//! `weir reset`

use std::process::ExitCode;

use clap::Args;

use super::{CommandResult, block_on, client::Client, hint, out::print_line};
use crate::proto::{ResetRequest, ResetResponse, rate_limiter_client::RateLimiterClient};

/// Reset a key: forget its counts
#[derive(Args)]
pub(super) struct Reset {
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
    pub(super) fn run(self) -> CommandResult {
        hint::check_expansion(&self.key)?;
        let (domain, key, path) = (self.domain.clone(), self.key.clone(), self.key.join(" / "));
        let request = ResetRequest { domain: self.domain, key: self.key, subtree: self.subtree };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            let answer = service.reset(request).await.map_err(|status| self.client.failure(&status))?.into_inner();
            if !answer.existed && !self.subtree {
                hint::warn_if_unlimited(&mut service, &domain, &key).await;
            }
            Ok(answer)
        })?;
        if self.json {
            let ResetResponse { existed, scanned, removed } = answer;
            print_line(serde_json::json!({ "existed": existed, "scanned": scanned, "removed": removed }))?;
        } else {
            print_line(outcome(&path, self.subtree, answer))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Formats the outcome of a reset.
fn outcome(path: &str, subtree: bool, ResetResponse { existed, scanned, removed }: ResetResponse) -> String {
    let scanned = if scanned { "; keys written meanwhile may remain" } else { "" };
    match (subtree, existed, removed) {
        (false, true, _) => format!("reset {path}; it had state"),
        (false, false, _) => format!("nothing to reset: {path} had no state"),
        (true, true, _) => format!("reset {path} and every key below it; it had state{scanned}"),
        (true, false, Some(false)) => format!("nothing to reset: neither {path} nor a key below it had state{scanned}"),
        // Older servers do not report whether a key below had state.
        (true, false, _) => format!("reset {path} and every key below it; it had no state of its own{scanned}"),
    }
}
