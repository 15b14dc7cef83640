//! `weir reserve|commit|cancel|extend`

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;
use weir_core::{
    algorithm::message::{duration, micros},
    domain::{Micros, time::parse_duration},
};

use super::{
    CommandResult, EXIT_NO, block_on,
    client::Client,
    hint,
    key::{KeyArgs, parse_cost},
    out::print_line,
    render::{RenderedDecision, human_duration},
};
use crate::proto::{
    self, CancelRequest, CancelResponse, CommitRequest, CommitResponse, ExtendRequest, ReserveRequest,
    rate_limiter_client::RateLimiterClient,
};

/// Printed if settling a reservation has changed nothing.
const NOT_HELD: &str = "nothing is held: reserved without the shared store, which did not answer (degraded)";

/// Reserve units until their real cost is known
///
/// Decides as `weir check` does. If it is allowed, the cost is charged and held, and the last line is the hold token: pass it to
/// `weir commit`, `weir cancel` or `weir extend`. A reservation that no limit applies to holds nothing, with a warning on standard
/// error.
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
    /// The fate of the units after that time
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
    /// They are refunded
    Release,
}

/// A reservation, and how the answer is printed.
#[derive(Args)]
struct Reservation {
    /// The hold token that `weir reserve` printed
    hold: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

/// Settle a reservation by its real cost
///
/// Unused units are refunded; more units are charged, also above the limit. A reservation is settled once: a repeated command
/// prints the first settlement.
#[derive(Args)]
pub(super) struct Commit {
    /// The real cost, in units; by default the reserved units
    #[arg(long, value_name = "UNITS", allow_negative_numbers = true, value_parser = parse_cost)]
    actual: Option<i64>,
    #[command(flatten)]
    reservation: Reservation,
}

/// Refund a reservation
///
/// A reservation that was committed stays so.
#[derive(Args)]
pub(super) struct Cancel {
    #[command(flatten)]
    reservation: Reservation,
}

/// Change when a reservation expires
#[derive(Args)]
pub(super) struct Extend {
    /// How long to hold it from now on: 10ms to 1d. Concurrency limits have a default
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    ttl: Option<Micros>,
    #[command(flatten)]
    reservation: Reservation,
}

/// An answer as `--json` prints it.
#[derive(Serialize)]
struct Printed {
    #[serde(flatten)]
    decided: RenderedDecision,
    /// `None`: refused.
    hold: Option<String>,
    expires_after_us: Option<Micros>,
}

impl Reserve {
    pub(super) fn run(self) -> CommandResult {
        let KeyArgs { key, domain, .. } = &self.charged;
        hint::check_expansion(key)?;
        let on_expiry = match self.on_expiry {
            OnExpiry::Keep => proto::OnExpiry::Keep,
            OnExpiry::Release => proto::OnExpiry::Release,
        };
        let (check, ttl) = (Some(self.charged.request()), self.ttl.map(duration));
        let request = ReserveRequest { check, ttl, on_expiry: on_expiry.into() };
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            let answer = match service.reserve(request).await {
                Ok(answer) => answer.into_inner(),
                Err(status) => return Err(self.charged.failure(&status, &self.client, &mut service).await),
            };
            let decision = answer.decision.as_ref();
            if decision.is_some_and(|decision| decision.levels.is_empty() && decision.r#override.is_empty()) {
                hint::warn_of_unlimited(&mut service, domain, key, hint::KeyForm::Arguments).await;
            }
            Ok(answer)
        })?;
        let decided = RenderedDecision::from(answer.decision.unwrap_or_default());
        let is_allowed = decided.summary.decision.allowed;
        let hold = is_allowed.then_some(answer.hold);
        let expires_after_us = answer.expires_after.as_ref().and_then(micros);
        if self.json {
            print_line(serde_json::to_string(&Printed { decided, hold, expires_after_us })?)?;
        } else {
            print_line(decided.text(self.charged.cost, 1).trim_end())?;
            if let Some((hold, expires_after)) = hold.zip(expires_after_us) {
                print_line(format!("held for {}:\n{hold}", human_duration(expires_after)))?;
            }
        }
        Ok(if is_allowed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) })
    }
}

impl Commit {
    pub(super) fn run(self) -> CommandResult {
        let Reservation { hold, json, client } = self.reservation;
        let request = CommitRequest { hold, actual: self.actual };
        let answer = client.call(async |service| RateLimiterClient::new(service).commit(request).await)?;
        let CommitResponse { charged, refunded, overage, degraded } = answer;
        if json {
            let answer = serde_json::json!({
                "charged": charged, "refunded": refunded, "overage": overage, "degraded": degraded,
            });
            print_line(answer)?;
        } else if degraded {
            print_line(NOT_HELD)?;
        } else if overage > 0 {
            print_line(format!("charged {charged}, {overage} more than reserved"))?;
        } else {
            print_line(format!("charged {charged}, gave back {refunded}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Cancel {
    pub(super) fn run(self) -> CommandResult {
        let Reservation { hold, json, client } = self.reservation;
        let request = CancelRequest { hold };
        let answer = client.call(async |service| RateLimiterClient::new(service).cancel(request).await)?;
        let CancelResponse { charged, refunded, degraded } = answer;
        if json {
            print_line(serde_json::json!({ "charged": charged, "refunded": refunded, "degraded": degraded }))?;
        } else if degraded {
            print_line(NOT_HELD)?;
        } else if charged > 0 {
            print_line(format!("committed before: charged {charged}, gave back {refunded}"))?;
        } else {
            print_line(format!("gave back {refunded}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Extend {
    pub(super) fn run(self) -> CommandResult {
        let Reservation { hold, json, client } = self.reservation;
        let request = ExtendRequest { hold, ttl: self.ttl.map(duration) };
        let answer = client.call(async |service| RateLimiterClient::new(service).extend(request).await)?;
        let expires_after = answer.expires_after.as_ref().and_then(micros).unwrap_or_default();
        if json {
            print_line(serde_json::json!({ "expires_after_us": expires_after, "degraded": answer.degraded }))?;
        } else if answer.degraded {
            print_line(NOT_HELD)?;
        } else {
            print_line(format!("held for {}", human_duration(expires_after)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
