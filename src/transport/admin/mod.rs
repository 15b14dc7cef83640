//! `weir.v1.Admin`, the operators' API. The roles are in `calls`, the rule for disabled authentication in `guard`.

mod cursor;
mod fleet;
mod holds;
mod keys;
mod overrides;
mod replicas;
mod scan_schedule;

use std::{sync::Arc, time::Duration};

use weir_core::domain::Key;
use weir_store::AnyStore;
use weir_telemetry::LogLimit;

use crate::{
    limiter::{Invalid, Limiter},
    overrides::OverrideService,
};
pub use fleet::ReplicaRegistry;
pub use keys::key_segments;
use scan_schedule::ScanSchedule;

/// Serves the operators' API.
pub struct AdminService {
    limiter: Arc<Limiter<AnyStore>>,
    replicas: Arc<ReplicaRegistry>,
    scan_schedule: ScanSchedule,
    overrides: Arc<OverrideService>,
    override_warnings: LogLimit,
}

impl AdminService {
    /// Returns the service of this replica, over its limiter.
    pub fn new(
        limiter: Arc<Limiter<AnyStore>>,
        replicas: Arc<ReplicaRegistry>,
        overrides: Arc<OverrideService>,
    ) -> Self {
        let override_warnings = LogLimit::every(Duration::from_secs(60));
        Self { limiter, replicas, scan_schedule: ScanSchedule::default(), overrides, override_warnings }
    }
}

/// Returns the key that a request lists from, in one domain or in all; `None`: all keys.
fn domain_and_prefix(domain: &str, prefix: &[String], all_domains: bool) -> Result<Option<Key>, Invalid> {
    if all_domains && !(domain.is_empty() && prefix.is_empty()) {
        return Err(Invalid::field_error("all_domains", "the keys of all domains have no domain or prefix in common"));
    }
    if prefix.is_empty() {
        // The name of the domain must be valid too.
        return Ok(Key::new(domain, &["-"]).map(|_| None)?);
    }
    let invalid = |error: weir_core::domain::KeyError| {
        Invalid::field_error(error.field().replace("key", "prefix"), error.to_string())
    };
    Key::new(domain, prefix).map(Some).map_err(invalid)
}
