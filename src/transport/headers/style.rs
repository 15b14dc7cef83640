//! The styles of the rate-limit headers.

use serde::{Deserialize, Serialize};

/// The headers that report the remaining units of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeaderStyle {
    /// No headers except `Retry-After`.
    #[serde(rename = "off")]
    Off,
    /// `RateLimit-Policy` and `RateLimit`, as in draft-ietf-httpapi-ratelimit-headers-11.
    #[default]
    #[serde(rename = "draft11")]
    Draft11,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, as in earlier drafts.
    #[serde(rename = "ratelimit")]
    Ratelimit,
    /// `X-RateLimit-Remaining`, `X-RateLimit-Clear` and `X-RateLimit-Reset`, in seconds with three decimals.
    #[serde(rename = "x-ratelimit")]
    XRatelimit,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: [`Self::Ratelimit`] under the names that
    /// many APIs use.
    #[serde(rename = "x-ratelimit-limit")]
    XRatelimitLimit,
}
