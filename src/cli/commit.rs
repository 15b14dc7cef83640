//! `weir commit`

use std::process::ExitCode;

use clap::Args;

use super::{CommandResult, block_on, client::Client, key::parse_cost, out::say};
use crate::proto::{CommitRequest, CommitResponse, rate_limiter_client::RateLimiterClient};

/// Settle a reservation by what it really cost
///
/// What was not used is given back; more is charged, also above the limit. A reservation is settled once: a repeated command
/// prints the first settlement.
#[derive(Args)]
pub(super) struct Commit {
    /// The hold that `weir reserve` printed
    hold: String,
    /// Units that it really cost; by default what was reserved
    #[arg(long, value_name = "UNITS", allow_negative_numbers = true, value_parser = parse_cost)]
    actual: Option<i64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Commit {
    pub(super) fn run(self) -> CommandResult {
        let request = CommitRequest { hold: self.hold, actual: self.actual };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            Ok(service.commit(request).await.map_err(|status| self.client.failure(&status))?.into_inner())
        })?;
        let CommitResponse { charged, refunded, overage, degraded } = answer;
        if self.json {
            let answer = serde_json::json!({
                "charged": charged, "refunded": refunded, "overage": overage, "degraded": degraded,
            });
            say(answer)?;
        } else if degraded {
            say(NOT_HELD)?;
        } else if overage > 0 {
            say(format!("charged {charged}, {overage} more than reserved"))?;
        } else {
            say(format!("charged {charged}, gave back {refunded}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Says that settling a reservation has changed nothing.
pub(super) const NOT_HELD: &str = "nothing is held: reserved without the shared store, which did not answer (degraded)";
