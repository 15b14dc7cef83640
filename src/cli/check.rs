//! `weir check`

use std::process::ExitCode;

use clap::{Args, builder::NonEmptyStringValueParser};
use tonic::Status;
use tonic_types::StatusExt;
use weir_core::{
    algorithm::message::duration,
    domain::{Micros, time::parse_duration},
};

use super::{
    CommandResult, EXIT_NO, Failure, block_on,
    client::{Client, Service},
    hint,
    key::KeyArgs,
    out::print_line,
    overrides,
    render::RenderedDecision,
};
use crate::proto::{CheckAllRequest, CheckRequest, rate_limiter_client::RateLimiterClient};

/// Check whether a request is allowed, and charge it
///
/// The key is a path, root first: `weir check user alex trade`. A cost of 0 is a preview, which charges nothing; a negative cost
/// is a refund. `--dry-run` prints the answer that the check would get, and charges nothing. A check that no limit applies to is
/// allowed, with a warning on standard error.
///
/// `--all` decides several keys together, each written as one argument: `weir check --all user/alex/trade user/berta/trade`. Either
/// all are charged or none.
///
/// Exit codes: 0: allowed; 1: refused; 2: an error.
#[derive(Args)]
pub(super) struct Check {
    #[command(flatten)]
    charged: KeyArgs,
    /// Divides the limits: 0.5 allows twice as much, 0 is unlimited
    #[arg(long, allow_negative_numbers = true, value_parser = parse_factor)]
    factor: Option<f64>,
    /// Longest wait to accept from shaping limits
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_wait: Option<Micros>,
    /// Decide as always, but charge nothing
    #[arg(long)]
    dry_run: bool,
    /// Each KEY is a whole key, its segments separated by slashes, in which `\/` is a slash; all are charged, or none
    #[arg(long)]
    all: bool,
    /// The request's own id, 1 to 64 bytes: repeated with the same id, it is charged once
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "all")]
    request_id: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Check {
    pub(super) fn run(self) -> CommandResult {
        let KeyArgs { key, domain, .. } = &self.charged;
        hint::check_expansion(key)?;
        if self.all {
            return self.run_all();
        }
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            let answer = match service.check(self.request(key.clone())).await {
                Ok(answer) => answer.into_inner(),
                Err(status) => return Err(self.charged.failure(&status, &self.client, &mut service).await),
            };
            if answer.levels.is_empty() && answer.r#override.is_empty() && self.factor != Some(0.0) {
                hint::warn_of_unlimited(&mut service, domain, key, hint::KeyForm::Arguments).await;
            }
            Ok(answer)
        })?;
        let decided = RenderedDecision::from(answer);
        if self.json {
            print_line(serde_json::to_string(&decided)?)?;
        } else {
            let dry_run = if self.dry_run { "dry run: " } else { "" };
            print_line(format!("{dry_run}{}", decided.text(self.charged.cost, 1).trim_end()))?;
        }
        Ok(if decided.summary.decision.allowed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) })
    }
}

impl Check {
    fn request(&self, key: Vec<String>) -> CheckRequest {
        CheckRequest {
            key,
            factor: self.factor,
            dry_run: self.dry_run,
            request_id: self.request_id.clone().unwrap_or_default(),
            max_wait: self.max_wait.map(duration),
            ..self.charged.request()
        }
    }

    /// Returns the reason why a call with several checks failed, after the key of the check that is wrong.
    async fn failure_of_one(&self, status: &Status, service: &mut RateLimiterClient<Service>) -> Failure {
        let Failure(message) = self.charged.failure(status, &self.client, service).await;
        let violation = status.get_details_bad_request().and_then(|bad| bad.field_violations.into_iter().next());
        let index = |field: &str| field.strip_prefix("checks[")?.split_once(']')?.0.parse::<usize>().ok();
        let key = violation.and_then(|violation| self.charged.key.get(index(&violation.field)?));
        Failure(key.map(|key| format!("{key}: {message}")).unwrap_or(message))
    }

    fn run_all(&self) -> CommandResult {
        let keys = self.charged.key.iter().map(|key| overrides::split(key)).collect::<Result<Vec<_>, _>>()?;
        let checks = keys.iter().map(|key| self.request(key.clone())).collect();
        let answer = block_on(async {
            let mut service = RateLimiterClient::new(self.client.connect().await?);
            let answer = match service.check_all(CheckAllRequest { checks }).await {
                Ok(answer) => answer.into_inner(),
                Err(status) => return Err(self.failure_of_one(&status, &mut service).await),
            };
            for (key, result) in keys.iter().zip(&answer.results) {
                if result.levels.is_empty() && result.r#override.is_empty() && self.factor != Some(0.0) {
                    hint::warn_of_unlimited(&mut service, &self.charged.domain, key, hint::KeyForm::Slashes).await;
                }
            }
            Ok(answer)
        })?;
        let results: Vec<_> = answer.results.into_iter().map(RenderedDecision::from).collect();
        if self.json {
            print_line(serde_json::json!({ "allowed": answer.allowed, "results": results }))?;
        } else {
            let dry_run = if self.dry_run { "dry run: " } else { "" };
            print_line(format!(
                "{dry_run}{}",
                if answer.allowed { "all are allowed" } else { "refused: none is charged" }
            ))?;
            let cost = self.charged.cost;
            for (key, decided) in self.charged.key.iter().zip(results) {
                print_line(format!("{key}: {}", decided.text(cost, keys.len()).trim_end()))?;
            }
        }
        Ok(if answer.allowed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) })
    }
}

fn parse_factor(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a factor; write a number from 0, such as 0.5"))
}
