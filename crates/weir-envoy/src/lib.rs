#![doc = include_str!("../README.md")]

/// The messages, in modules named after their packages.
#[allow(dead_code, deprecated, missing_docs, clippy::all, rustdoc::all, reason = "generated")]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

pub use messages::{envoy, google, ratelimit};

/// The descriptors of the rate-limit service and its messages, as a `FileDescriptorSet`.
pub const RATE_LIMIT_SERVICE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rate_limit_service.binpb"));

/// The descriptors of the rate-limit quota service and its messages, as a `FileDescriptorSet`.
pub const RATE_LIMIT_QUOTA_SERVICE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rate_limit_quota_service.binpb"));
