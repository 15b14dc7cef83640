//! What `weir config check` validates.

use weir_policy::Policy;

use super::{AppError, policy, security::Security, worst_case::WorstCase};
use crate::{config::Settings, telemetry::Metrics};

/// The configuration that would be in force.
pub struct Loaded {
    /// The policy's domains.
    pub domains: usize,
    /// The limits of all of them.
    pub limits: usize,
    /// Whether clients are authenticated.
    pub is_authenticated: bool,
    /// The memory that is taken at most.
    pub worst_case: WorstCase,
}

/// Loads the files that these settings name, as a start would, and listens to nothing.
///
/// # Errors
/// [`AppError`]: why `serve` would not start.
pub fn check(settings: &Settings) -> Result<Loaded, AppError> {
    let security = Security::open(settings, &Metrics::with_settings(&settings.metrics))?;
    let policy = match policy::is_named(settings)? {
        true => policy::load(settings).map_err(AppError::Policy)?.0,
        false => Policy::empty(),
    };
    Ok(Loaded {
        domains: policy.domains().count(),
        limits: policy.limit_count(),
        is_authenticated: security.is_authenticated(),
        worst_case: WorstCase::of(settings),
    })
}
