//! Envoy's rate limit quota service: `envoy.service.rate_limit_quota.v3.RateLimitQuotaService`.
//!
//! Envoy periodically reports the usage of its buckets, and gets a token bucket for each, from which it decides
//! locally. [`weir_core::quota`] divides each limit among the Envoys that report; `weir_store` is the authority over
//! the part that this replica may divide.
//!
//! `wire` decodes reports and encodes assignments; `session` is one stream; `quotas` divides the limits among the
//! buckets; `authority` holds this replica's part of each limit.

mod authority;
pub mod quotas;
pub mod session;
pub mod settings;
mod state;
#[cfg(test)]
mod tests;
pub mod wire;

pub use quotas::{QuotaMode, Quotas};
pub use session::Session;
pub use settings::{QuotaDomain, RlqsSettings};
pub use state::HOLDERS_OF_A_BUCKET;
