//! `weir reserve`

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;
use weir_core::{
    algorithm::message::{duration, micros},
    domain::{Micros, time::parse_duration},
};

use super::{
    CommandResult, NO, block_on,
    client::Client,
    hint,
    key::KeyArgs,
    out::say,
    render::{Decided, shown},
};
use crate::proto::{self, ReserveRequest, rate_limiter_client::RateLimiterClient};

/// Reserve units until their real cost is known
///
/// Decides as `weir check` does. Where it is allowed, the cost is charged and held, and the last line is the hold: give it to
/// `weir commit`, `weir cancel` or `weir extend`.
///
/// Exit codes: 0: reserved; 1: refused; 2: an error.
#[derive(Args)]
#[command(mut_arg("cost", |cost| cost.help("Units to reserve: the estimate")))]
pub(super) struct Reserve {
    #[command(flatten)]
    charged: KeyArgs,
    /// How long to hold them: 10ms to 1d. Concurrency limits have a default
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    ttl: Option<Micros>,
    /// What becomes of them after that time
    #[arg(long, value_enum, default_value_t)]
    on_expiry: OnExpiry,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum OnExpiry {
    /// They count as spent
    #[default]
    Keep,
    /// They are given back
    Release,
}

/// An answer as `--json` prints it.
#[derive(Serialize)]
struct Printed {
    #[serde(flatten)]
    decided: Decided,
    /// `None`: refused.
    hold: Option<String>,
    expires_after_us: Option<Micros>,
}

impl Reserve {
    pub(super) fn run(self) -> CommandResult {
        hint::check_expansion(&self.charged.key)?;
        let on_expiry = match self.on_expiry {
            OnExpiry::Keep => proto::OnExpiry::Keep,
            OnExpiry::Release => proto::OnExpiry::Release,
        };
        let (check, ttl) = (Some(self.charged.request()), self.ttl.map(duration));
        let request = ReserveRequest { check, ttl, on_expiry: on_expiry.into() };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            match service.reserve(request).await {
                Ok(answer) => Ok(answer.into_inner()),
                Err(status) => Err(self.charged.failure(&status, &self.client, &mut service).await),
            }
        })?;
        let decided = Decided::from(answer.decision.unwrap_or_default());
        let is_allowed = decided.summary.decision.allowed;
        let hold = is_allowed.then_some(answer.hold);
        let expires_after_us = answer.expires_after.as_ref().and_then(micros);
        if self.json {
            say(serde_json::to_string(&Printed { decided, hold, expires_after_us })?)?;
        } else {
            say(decided.text().trim_end())?;
            if let Some((hold, expires_after)) = hold.zip(expires_after_us) {
                say(format!("held for {}:\n{hold}", shown(expires_after)))?;
            }
        }
        Ok(if is_allowed { ExitCode::SUCCESS } else { ExitCode::from(NO) })
    }
}
