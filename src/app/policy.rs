//! The policy in force: a changed policy replaces it, an invalid one changes nothing.

use std::{path::PathBuf, sync::Arc};

use tracing::{error, info, warn};
use weir_policy::{Diff, HOLDS_NOTHING, Loaded, Policy};
use weir_settings::{Problems, file::is_set};
use weir_store::{AnyStore, SharedStore};

use super::AppError;
use crate::{
    config::Settings,
    limiter::{Limiter, stored_keys::may_be_in_force},
};

/// The log messages of an invalid policy, without and with one in force.
pub(super) const NO_POLICY_YET: &str = "the policy of the control plane is not valid; there is none yet";
const PREVIOUS_STAYS: &str = "the new policy is not valid; the previous one stays in force";

/// Replaces the policy of the limiter.
pub(super) struct PolicyReloader {
    pub limiter: Arc<Limiter<AnyStore>>,
    /// The files that were empty when it was loaded.
    pub empty: Vec<PathBuf>,
}

/// Whether these settings name a policy.
///
/// # Errors
/// Neither or both of a policy and `allow_all` are configured: serving without a policy must be explicit.
pub(super) fn is_named(settings: &Settings) -> Result<bool, AppError> {
    match (is_set(&settings.limits), settings.allow_all) {
        (false, false) => Err(AppError::NoPolicy),
        (true, true) => Err(AppError::PolicyAndNone(settings.limits.display().to_string())),
        (is_named, _) => Ok(is_named),
    }
}

/// Loads the policy of these settings, and logs the files that it skipped.
pub(super) fn load(settings: &Settings) -> Result<Loaded, Problems> {
    let loaded = weir_policy::load(&settings.limits, &settings.policy_rules())?;
    for skipped in &loaded.skipped {
        info!(path = %skipped.display(), "not a policy file: skipped");
    }
    Ok(loaded)
}

/// Warns about the empty files of a policy in force.
pub(super) fn warn_of_empty(files: &[PathBuf]) {
    for empty in files {
        warn!(path = %empty.display(), "the policy file is empty: it limits nothing");
    }
}

/// Logs each problem.
pub(super) fn log_problems(problems: &Problems, message: &str) {
    for problem in &problems.0 {
        error!(%problem, "{message}");
    }
}

impl PolicyReloader {
    /// Applies a policy. The same policy again changes nothing: a control plane sends it on each new stream, and
    /// replacing it would end all leases and the near cache.
    ///
    /// # Errors
    /// An invalid policy, which is logged and counted; the previous one, if any, stays in force.
    pub(super) fn reload(&mut self, loaded: Result<Loaded, Problems>) -> Result<(), Problems> {
        match loaded.and_then(|loaded| self.reject_emptied(loaded)) {
            Ok((_, hash)) if hash == self.limiter.metrics().policy_hash() => {
                info!(hash, "policy unchanged");
                self.limiter.metrics().policy_reload(true);
                Ok(())
            }
            Ok((policy, hash)) => {
                let diff = Diff::between(&self.limiter.policy().policy, &policy);
                info!(
                    hash,
                    domains = policy.domains().count(),
                    limits = policy.limit_count(),
                    added = diff.added.len(),
                    changed = diff.changed.len(),
                    removed = diff.removed.len(),
                    changes = %diff,
                    "policy reloaded"
                );
                self.limiter.replace_policy(policy);
                self.forget_charges_of_removed_limits();
                self.limiter.metrics().policy_reload(true);
                self.limiter.metrics().policy_in_force(&hash);
                Ok(())
            }
            Err(problems) => {
                let is_first = self.limiter.policy().policy.is_awaited();
                log_problems(&problems, if is_first { NO_POLICY_YET } else { PREVIOUS_STAYS });
                self.limiter.metrics().policy_reload(false);
                Err(problems)
            }
        }
    }

    /// Drops the outage charges of limits that are no longer effective: they are not charged to the store.
    fn forget_charges_of_removed_limits(&self) {
        let Some(charges) = self.limiter.store().shared().and_then(SharedStore::outage_charges) else { return };
        if charges.keys() == 0 {
            return;
        }
        let handle = self.limiter.policy();
        charges.retain(|state| may_be_in_force(&handle.policy, state));
    }

    /// Rejects a policy with a file that has become empty, since the file may be in the middle of being written.
    fn reject_emptied(&mut self, Loaded { policy, empty, hash, .. }: Loaded) -> Result<(Policy, String), Problems> {
        if let Some(emptied) = empty.iter().find(|path| !self.empty.contains(path)) {
            return Err(Problems::of_file(emptied, HOLDS_NOTHING));
        }
        warn_of_empty(&empty);
        self.empty = empty;
        Ok((policy, hash))
    }
}
