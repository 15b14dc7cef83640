//! The key that `weir check` and `weir reserve` charge.

use clap::Args;
use tonic::Status;

use super::{
    Failure,
    client::{Client, Service},
    hint,
};
use crate::proto::{CheckRequest, rate_limiter_client::RateLimiterClient};

/// A key, and what it is charged.
#[derive(Args)]
pub(super) struct KeyArgs {
    /// The key's segments, root first
    #[arg(required = true, value_name = "KEY")]
    pub key: Vec<String>,
    /// The domain whose policy decides
    #[arg(long, default_value = "")]
    pub domain: String,
    /// Units to charge
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = parse_cost)]
    pub cost: i64,
}

impl KeyArgs {
    /// Returns the check of the key.
    pub(super) fn request(&self) -> CheckRequest {
        CheckRequest { domain: self.domain.clone(), key: self.key.clone(), cost: Some(self.cost), ..Default::default() }
    }

    /// Returns the reason why a call failed, with a hint if the domain is not defined.
    pub(super) async fn failure(
        &self,
        status: &Status,
        client: &Client,
        service: &mut RateLimiterClient<Service>,
    ) -> Failure {
        let hint = hint::after(status, service, &self.domain, &self.key).await;
        Failure(client.failure(status).0 + hint.as_deref().unwrap_or_default())
    }
}

pub(super) fn parse_cost(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a cost; write a whole number from -2^32 to 2^32"))
}
