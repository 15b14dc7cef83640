//! What the settings mean together to those who use them.

use weir_core::algorithm::Bounds;
use weir_policy::Rules;
use weir_server::Listen;

use super::{LimitSpecRule, Settings};
use crate::xds;

impl Settings {
    /// The address of the control plane that the policy comes from; `None`: it comes from files, or there is none.
    pub fn control_plane(&self) -> Option<&str> {
        self.limits.to_str()?.strip_prefix(xds::SCHEME)
    }

    /// The port of `/metrics` alone, where there is one.
    ///
    /// # Errors
    /// It is not an address.
    pub fn metrics_listen(&self) -> Result<Option<Listen>, String> {
        let address = &self.metrics.listen;
        let parse = || address.parse().map_err(|why| format!("metrics.listen: {why}"));
        (!address.is_empty()).then(parse).transpose()
    }

    /// The bounds on limits that files and callers name.
    pub fn bounds(&self) -> Bounds {
        Bounds { max_period: self.max_period.0 }
    }

    /// The rules for policy files.
    pub fn policy_rules(&self) -> Rules {
        Rules {
            bounds: self.bounds(),
            merge_domains: self.envoy.merge_domains,
            descriptors_charge: Some(self.envoy.charge.into()),
            require_end_marker: self.limits_require_end_marker,
            denies_specs: self.limit_spec == LimitSpecRule::Deny,
            allows_empty: self.limits_allow_empty,
        }
    }
}
