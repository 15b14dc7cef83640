//! How an HTTP answer tells of a limit.

use serde::{Deserialize, Serialize};

/// Which headers tell what is left of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeaderStyle {
    /// None.
    #[serde(rename = "off")]
    Off,
    /// `RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-11 has them.
    #[default]
    #[serde(rename = "draft11")]
    Draft11,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, as earlier drafts had them.
    #[serde(rename = "ratelimit")]
    Ratelimit,
    /// `X-RateLimit-Remaining`, `X-RateLimit-Clear` and `X-RateLimit-Reset`, in seconds with three decimals.
    #[serde(rename = "x-ratelimit")]
    XRatelimit,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: [`Self::Ratelimit`] under the names that many APIs use.
    #[serde(rename = "x-ratelimit-limit")]
    XRatelimitLimit,
}
