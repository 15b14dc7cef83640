//! Settings of the answers to Envoy.

use axum::http::HeaderName;
use serde::{Deserialize, Serialize};
use weir_core::domain::{Charge, OnStoreFailure};

/// The settings of Envoy's rate-limit service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvoySettings {
    /// The headers that Envoy adds to the response to a request.
    pub headers: Headers,
    /// Name of the header of [`Headers::Ratelimit`] with the limit: requests in its unit.
    pub limit_header: String,
    /// Name of the header with the requests remaining.
    pub remaining_header: String,
    /// Name of the header with the seconds until the reset.
    pub reset_header: String,
    /// Whether answers contain dynamic metadata: the domain, the descriptors, and the metadata of their rules.
    pub dynamic_metadata: bool,
    /// Whether all limits are in shadow mode, so that no request is refused.
    pub shadow_mode: bool,
    /// Whether every limit of an Envoy file is a quota: a request is refused only if all its limits are exhausted.
    pub quota_mode: bool,
    /// The charge of Envoy files that do not specify it.
    #[serde(with = "ChargeSetting")]
    pub charge: Charge,
    /// How Envoy files that do not specify it are decided while the shared store is unavailable.
    #[serde(with = "StoreFailureSetting")]
    pub on_store_failure: OnStoreFailure,
    /// Whether several Envoy files may define one domain, to which each adds its descriptors.
    pub merge_domains: bool,
}

/// The charge of a refused request.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Charge", rename_all = "snake_case")]
enum ChargeSetting {
    /// Each descriptor is charged separately.
    Independent,
    /// Only the limits that refuse it.
    OverLimitOnly,
    /// Nothing.
    AllOrNothing,
}

/// How requests are decided while the shared store is unavailable.
#[derive(Serialize, Deserialize)]
#[serde(remote = "OnStoreFailure", rename_all = "snake_case")]
enum StoreFailureSetting {
    /// In this replica's own memory.
    Local,
    /// All pass.
    Allow,
    /// All are refused.
    Deny,
    /// All fail, and Envoy's `failure_mode_deny` decides.
    Error,
}

/// Headers that Envoy adds to the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Headers {
    /// None.
    #[default]
    Off,
    /// The three of envoyproxy/ratelimit: limit, remaining, reset.
    Ratelimit,
    /// The same three as `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    #[serde(rename = "x-ratelimit-limit")]
    XRatelimitLimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF's draft 11.
    Draft11,
    /// The headers of [`Self::Ratelimit`] and of [`Self::Draft11`].
    Both,
}

impl Headers {
    /// Whether the headers of draft 11 are enabled.
    pub fn draft11(self) -> bool {
        matches!(self, Self::Draft11 | Self::Both)
    }
}

impl Default for EnvoySettings {
    fn default() -> Self {
        Self {
            headers: Headers::Off,
            limit_header: "RateLimit-Limit".to_owned(),
            remaining_header: "RateLimit-Remaining".to_owned(),
            reset_header: "RateLimit-Reset".to_owned(),
            dynamic_metadata: false,
            shadow_mode: false,
            quota_mode: false,
            charge: Charge::Independent,
            on_store_failure: OnStoreFailure::Local,
            merge_domains: false,
        }
    }
}

impl EnvoySettings {
    /// Returns the names of the headers limit, remaining and reset, if they are enabled.
    pub fn three(&self) -> Option<[&str; 3]> {
        match self.headers {
            Headers::Off | Headers::Draft11 => None,
            Headers::Ratelimit | Headers::Both => {
                Some([&self.limit_header, &self.remaining_header, &self.reset_header])
            }
            Headers::XRatelimitLimit => Some(["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]),
        }
    }

    /// Checks that the names of headers are valid.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn check(&self) -> Result<(), String> {
        let names = [
            ("limit_header", &self.limit_header),
            ("remaining_header", &self.remaining_header),
            ("reset_header", &self.reset_header),
        ];
        for (key, name) in names {
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(format!("envoy.{key}: `{}` is not a header name", name.escape_debug()));
            }
        }
        Ok(())
    }
}
