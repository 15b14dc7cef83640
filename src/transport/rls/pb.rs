//! Envoy's messages, and the descriptors of the service and of what its messages hold.

pub use weir_envoy::envoy::service::ratelimit::v3::*;

pub use weir_envoy::RATE_LIMIT_SERVICE as DESCRIPTORS;
