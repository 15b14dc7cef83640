//! `weir cancel`

use std::process::ExitCode;

use clap::Args;

use super::{CommandResult, block_on, client::Client, commit::NOT_HELD, out::say};
use crate::proto::{CancelRequest, CancelResponse, rate_limiter_client::RateLimiterClient};

/// Give back what was reserved
///
/// A reservation that was committed stays so.
#[derive(Args)]
pub(super) struct Cancel {
    /// The hold that `weir reserve` printed
    hold: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Cancel {
    pub(super) fn run(self) -> CommandResult {
        let request = CancelRequest { hold: self.hold };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            Ok(service.cancel(request).await.map_err(|status| self.client.failure(&status))?.into_inner())
        })?;
        let CancelResponse { charged, refunded, degraded } = answer;
        if self.json {
            say(serde_json::json!({ "charged": charged, "refunded": refunded, "degraded": degraded }))?;
        } else if degraded {
            say(NOT_HELD)?;
        } else if charged > 0 {
            say(format!("committed before: charged {charged}, gave back {refunded}"))?;
        } else {
            say(format!("gave back {refunded}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
