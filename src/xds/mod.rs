//! The policy from a control plane, by xDS: aggregated discovery (ADS), state of the world, of
//! `ratelimit.config.ratelimit.v3.RateLimitConfig`, as envoyproxy/ratelimit takes it.
//!
//! Each response is the whole policy. [`Client`] receives it and answers with ACK or NACK, [`compile`] makes the policy of it
//! by the reader of Envoy's files, [`last`] keeps it on disk.

mod client;
mod document;
pub mod last;
mod settings;

pub use client::Client;
pub use document::compile;
pub use settings::{SCHEME, Start, XdsSettings};

pub use weir_envoy::envoy::service::discovery::v3::DiscoveryResponse;
