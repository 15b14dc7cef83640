//! Envoy's messages, and the descriptors of the service and of what its messages hold: those of the protos that
//! `envoy-types` is generated from (held by `tests/envoy`).

pub use envoy_types::pb::envoy::service::ratelimit::v3::*;

/// The descriptors, as a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.binpb");
