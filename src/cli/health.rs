//! `weir health`

use std::process::ExitCode;

use clap::Args;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use super::{CommandResult, EXIT_NO, client::Client, out::print_line};

/// Query the health of a service
///
/// Exit code 0: serving; 1: not serving, for example while draining; 2: unreachable.
#[derive(Args)]
pub(super) struct Health {
    /// Full name of one gRPC service; default: the whole server
    #[arg(long, default_value = "")]
    service: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Health {
    pub(super) fn run(self) -> CommandResult {
        let request = HealthCheckRequest { service: self.service };
        let answer = self.client.call(async |service| HealthClient::new(service).check(request).await)?;
        let name = answer.status().as_str_name();
        if self.json {
            print_line(serde_json::json!({ "status": name }))?;
        } else {
            print_line(name)?;
        }
        Ok(if answer.status() == ServingStatus::Serving { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) })
    }
}
