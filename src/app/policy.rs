//! The policy in force: a changed one replaces it, a bad one changes nothing.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use tracing::{error, info, warn};
use weir_core::domain::key::domain_name;
use weir_policy::{Diff, HOLDS_NOTHING, Loaded, Policy};
use weir_settings::{Problems, file::is_set};
use weir_store::{AnyStore, SharedStore};

use super::AppError;
use crate::{config::Settings, limiter::Limiter};

/// The policy as it was loaded last.
pub(super) struct PolicyInForce {
    pub limiter: Arc<Limiter<AnyStore>>,
    /// The files that held nothing then.
    pub empty: Vec<PathBuf>,
}

/// Whether these settings name a policy.
///
/// # Errors
/// Without one the settings must say that everything is to be allowed; otherwise the policy has been forgotten.
pub(super) fn is_named(settings: &Settings) -> Result<bool, AppError> {
    match (is_set(&settings.limits), settings.allow_all) {
        (false, false) => Err(AppError::NoPolicy),
        (true, true) => Err(AppError::PolicyAndNone(settings.limits.display().to_string())),
        (is_named, _) => Ok(is_named),
    }
}

/// Loads the policy of these settings, and logs what a person should know of it.
pub(super) fn load(settings: &Settings) -> Result<Loaded, Problems> {
    let loaded = weir_policy::load(&settings.limits, &settings.policy_rules())?;
    for skipped in &loaded.skipped {
        info!(path = %skipped.display(), "not a policy file: skipped");
    }
    Ok(loaded)
}

/// Warns of the empty files of a policy in force.
pub(super) fn warn_of_empty(files: &[PathBuf]) {
    for empty in files {
        warn!(path = %empty.display(), "the policy file is empty: it limits nothing");
    }
}

impl PolicyInForce {
    /// Puts a policy in force.
    ///
    /// # Errors
    /// It is not valid, which is logged and counted. The previous one stays in force.
    pub(super) fn reload(&mut self, loaded: Result<Loaded, Problems>) -> Result<(), Problems> {
        match loaded.and_then(|loaded| self.check(loaded)) {
            Ok((policy, hash)) => {
                let diff = Diff::between(&self.limiter.policy_handle().policy, &policy);
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
                for problem in &problems.0 {
                    error!(%problem, "the new policy is not valid; the previous one stays in force");
                }
                self.limiter.metrics().policy_reload(false);
                Err(problems)
            }
        }
    }

    /// What limits admitted during an outage is charged to the store afterwards only where they are still in force.
    fn forget_charges_of_removed_limits(&self) {
        let Some(charges) = self.limiter.store().shared().and_then(SharedStore::outage_charges) else { return };
        if charges.keys() == 0 {
            return;
        }
        let handle = self.limiter.policy_handle();
        let limits =
            handle.policy.limits().map(|(domain, limit)| (domain_name(&domain.name), &*limit.name, limit.ident()));
        let in_force: HashSet<_> = limits.collect();
        charges.retain(|domain, name, ident| in_force.contains(&(domain.to_vec(), name, ident)));
    }

    /// A file that has become empty is taken for one that is being written.
    fn check(&mut self, Loaded { policy, empty, hash, .. }: Loaded) -> Result<(Policy, String), Problems> {
        if let Some(emptied) = empty.iter().find(|path| !self.empty.contains(path)) {
            return Err(Problems::of_file(emptied, HOLDS_NOTHING));
        }
        warn_of_empty(&empty);
        self.empty = empty;
        Ok((policy, hash))
    }
}
