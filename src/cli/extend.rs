//! `weir extend`

use std::process::ExitCode;

use clap::Args;
use weir_core::{
    algorithm::message::{duration, micros},
    domain::{Micros, time::parse_duration},
};

use super::{CommandResult, block_on, client::Client, commit::NOT_HELD, out::say, render::shown};
use crate::proto::{ExtendRequest, rate_limiter_client::RateLimiterClient};

/// Hold a reservation for longer, or shorter
#[derive(Args)]
pub(super) struct Extend {
    /// The hold that `weir reserve` printed
    hold: String,
    /// How long to hold it from now on: 10ms to 1d. Concurrency limits have a default
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    ttl: Option<Micros>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Extend {
    pub(super) fn run(self) -> CommandResult {
        let request = ExtendRequest { hold: self.hold, ttl: self.ttl.map(duration) };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            Ok(service.extend(request).await.map_err(|status| self.client.failure(&status))?.into_inner())
        })?;
        let expires_after = answer.expires_after.as_ref().and_then(micros).unwrap_or_default();
        if self.json {
            say(serde_json::json!({ "expires_after_us": expires_after, "degraded": answer.degraded }))?;
        } else if answer.degraded {
            say(NOT_HELD)?;
        } else {
            say(format!("held for {}", shown(expires_after)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
