//! Envoy's rate limit quota service: `envoy.service.rate_limit_quota.v3.RateLimitQuotaService`.
//!
//! Envoy reports now and then what its buckets were asked for, and gets a token bucket for each, from which it decides by
//! itself. [`weir_core::quota`] divides each limit among the Envoys that report; `weir_store` is the authority over what
//! this replica may divide.
//!
//! `wire` reads reports and writes assignments; `session` is one stream; `quotas` knows the buckets, divides them, and
//! has `authority` hold this replica's part of each limit.

mod authority;
mod book;
pub mod quotas;
pub mod session;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod wire;

pub use book::HOLDERS_OF_A_BUCKET;
pub use quotas::Quotas;
pub use session::Session;
pub use settings::{QuotaDomain, RlqsSettings};
