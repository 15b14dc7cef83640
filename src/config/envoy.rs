//! What concerns Envoy's rate-limit service and its files.

use serde::{Deserialize, Serialize};

/// How Weir stands in for Envoy's rate-limit service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvoySettings {
    /// Whether several files of descriptors may be of one domain.
    pub merge_domains: bool,
}
