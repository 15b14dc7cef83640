//! The policy from a control plane, by xDS: aggregated discovery (ADS), state of the world, of
//! `ratelimit.config.ratelimit.v3.RateLimitConfig`, as in envoyproxy/ratelimit.
//!
//! Each response is the whole policy. [`Client`] receives it and answers with ACK or NACK, [`compile`] compiles it with
//! the reader of Envoy's files, and [`last`] keeps it on disk.

mod client;
mod document;
pub mod last;
mod settings;

pub use client::Client;
pub use document::compile;
pub use settings::{SCHEME, Start, XdsSettings};

pub use weir_envoy::envoy::service::discovery::v3::DiscoveryResponse;
