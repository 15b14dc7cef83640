//! Envoy's rate-limit service: `envoy.service.ratelimit.v3.RateLimitService`.
//!
//! [`wire`] decodes a request with any descriptors. [`encode`] builds the answer from the statuses, with
//! [`added_headers`] and [`metadata`] if the settings enable them. [`service`] is the call, and [`json`] the same call
//! over HTTP.

pub mod added_headers;
pub mod encode;
pub mod json;
pub mod metadata;
pub mod service;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod wire;

pub use service::Rls;
pub use settings::{EnvoySettings, Headers};
pub use weir_envoy::envoy::service::ratelimit::v3 as pb;
