//! How Envoy is answered beyond yes and no.

use axum::http::HeaderName;
use serde::{Deserialize, Serialize};
use weir_core::domain::Charge;

/// The settings of Envoy's rate-limit service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvoySettings {
    /// The headers that Envoy is asked to add to the answer of a request.
    pub headers: Headers,
    /// The header of [`Headers::Ratelimit`] that tells how many requests the limit allows in its unit.
    pub limit_header: String,
    /// The one that tells how many of them are left.
    pub remaining_header: String,
    /// The one that tells in how many seconds the limit is as new.
    pub reset_header: String,
    /// Whether an answer carries the domain, the descriptors and what they met as dynamic metadata.
    pub dynamic_metadata: bool,
    /// Whether no request is refused, whatever the limits say: all of them are in shadow.
    pub shadow_mode: bool,
    /// Whether every limit of an Envoy file is a quota: a request is refused only when all that it meets are used up.
    pub quota_mode: bool,
    /// How Envoy files charge that do not say it.
    pub charge: ChargeSetting,
    /// Whether several Envoy files may have one domain, to which each adds its descriptors.
    pub merge_domains: bool,
}

/// What a refused request is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeSetting {
    /// Every descriptor for itself.
    #[default]
    Independent,
    /// Only the limits that refuse it.
    OverLimitOnly,
    /// Nothing.
    AllOrNothing,
}

impl From<ChargeSetting> for Charge {
    fn from(setting: ChargeSetting) -> Self {
        match setting {
            ChargeSetting::Independent => Self::Independent,
            ChargeSetting::OverLimitOnly => Self::OverLimitOnly,
            ChargeSetting::AllOrNothing => Self::AllOrNothing,
        }
    }
}

/// Headers that Envoy is asked to add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Headers {
    /// None.
    #[default]
    Off,
    /// The three of envoyproxy/ratelimit: limit, remaining, reset.
    Ratelimit,
    /// The same as `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    #[serde(rename = "x-ratelimit-limit")]
    XRatelimitLimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF's draft 11.
    Draft11,
    /// Those of [`Self::Ratelimit`] and of [`Self::Draft11`].
    Both,
}

impl Headers {
    /// Whether the fields of draft 11 are asked for.
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
            charge: ChargeSetting::default(),
            merge_domains: false,
        }
    }
}

impl EnvoySettings {
    /// The names of the three headers limit, remaining and reset, where they are asked for.
    pub fn three(&self) -> Option<[&str; 3]> {
        match self.headers {
            Headers::Off | Headers::Draft11 => None,
            Headers::Ratelimit | Headers::Both => {
                Some([&self.limit_header, &self.remaining_header, &self.reset_header])
            }
            Headers::XRatelimitLimit => Some(["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]),
        }
    }

    /// Checks that what is to be a header's name can be one.
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
