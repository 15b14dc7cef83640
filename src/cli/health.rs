//! `weir health`

use std::process::ExitCode;

use clap::Args;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use super::{CommandResult, NO, block_on, client::Client, out::say};

/// Ask a service whether it serves
///
/// Exit code 0: it serves; 1: it says that it does not, as while it shuts down; 2: it cannot be asked.
#[derive(Args)]
pub struct Health {
    /// Ask for one gRPC service by its full name instead of the whole
    #[arg(long, default_value = "")]
    service: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Health {
    pub fn run(self) -> CommandResult {
        let request = HealthCheckRequest { service: self.service };
        let answer = block_on(async {
            let mut service = HealthClient::new(self.client.connect().await?);
            self.client.call(service.check(request)).await
        })?;
        let name = answer.status().as_str_name();
        if self.json {
            say(serde_json::json!({ "status": name }))?;
        } else {
            say(name)?;
        }
        Ok(if answer.status() == ServingStatus::Serving { ExitCode::SUCCESS } else { ExitCode::from(NO) })
    }
}
