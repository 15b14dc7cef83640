//! Values that are derived from the settings.

use weir_core::algorithm::Bounds;
use weir_policy::Rules;
use weir_server::Listen;

use super::{LimitSpecRule, Settings};
use crate::xds;

impl Settings {
    /// Returns the address of the control plane that the policy comes from; `None`: it comes from files, or there is
    /// none.
    pub fn control_plane(&self) -> Option<&str> {
        self.limits.to_str()?.strip_prefix(xds::SCHEME)
    }

    /// Returns the address of the port of `/metrics` and the probes alone, if it is configured.
    ///
    /// # Errors
    /// The setting is not an address.
    pub fn metrics_listen(&self) -> Result<Option<Listen>, String> {
        let address = &self.metrics.listen;
        let parse = || address.parse().map_err(|why| format!("metrics.listen: {why}"));
        (!address.is_empty()).then(parse).transpose()
    }

    /// Returns the bounds on limits in files and in requests.
    pub fn bounds(&self) -> Bounds {
        Bounds { max_period: self.max_period.0 }
    }

    /// Returns the rules for policy files.
    pub fn policy_rules(&self) -> Rules {
        Rules {
            bounds: self.bounds(),
            merge_domains: self.envoy.merge_domains,
            descriptors_charge: Some(self.envoy.charge),
            descriptors_on_store_failure: self.envoy.on_store_failure,
            descriptors_quota_mode: self.envoy.quota_mode,
            require_end_marker: self.limits_require_end_marker,
            denies_specs: self.limit_spec == LimitSpecRule::Deny,
            allows_empty: self.limits_allow_empty,
        }
    }
}
