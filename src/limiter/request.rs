//! A validated request, and the plan for it.

use std::{borrow::Cow, sync::Arc};

use weir_core::{
    domain::{Charge, Key, Micros, request},
    hold::RequestId,
    plan::{Levels, Overridden, Plan},
};
use weir_policy::{Domain, Policy, RequestLimits, tree::DEFAULT_ANCHOR};

use super::{CheckError, Invalid};

/// A request with a valid key and valid terms.
#[derive(Debug)]
pub struct Request<'a> {
    /// The domain's name.
    pub domain: Cow<'a, str>,
    /// The key, which includes the domain.
    pub key: Key,
    /// Units to charge.
    pub cost: i64,
    /// The longest wait that the client accepts; `None`: not specified.
    pub max_wait: Option<Micros>,
    /// Divides the counts of the limits; 0 lifts them.
    pub factor: f64,
    /// The limits that the request itself specifies (`limit_spec`).
    pub spec: Option<Arc<RequestLimits>>,
    /// The effect of a refusal by one limit on the others; `None`: as the policy or the spec says.
    pub charge: Option<Charge>,
    /// Whether it is a dry run: decided as usual, but nothing is charged and no state changes.
    pub dry_run: bool,
    /// The client's own id of the request, for idempotency.
    pub id: Option<RequestId>,
}

impl<'n> Request<'n> {
    /// Returns a request for one unit under the domain's policy.
    ///
    /// # Errors
    /// [`Invalid`] names the fault of the key.
    #[inline]
    pub fn new<T: AsRef<str>>(domain: &'n str, segments: &[T]) -> Result<Self, Invalid> {
        Ok(Self::of_key(Cow::Borrowed(domain), Key::new(domain, segments)?))
    }

    /// As [`Request::new`], of a key of the domain.
    #[inline]
    pub(super) fn of_key(domain: Cow<'n, str>, key: Key) -> Self {
        let (cost, factor) = (1, 1.0);
        let (max_wait, spec, charge, dry_run, id) = (None, None, None, false, None);
        Self { domain, key, cost, max_wait, factor, spec, charge, dry_run, id }
    }

    /// Returns a request that borrows nothing.
    pub fn into_owned(self) -> Request<'static> {
        Request { domain: Cow::Owned(self.domain.into_owned()), ..self }
    }

    /// Sets the cost, the longest wait and the factor.
    ///
    /// # Errors
    /// [`Invalid`] names the term that is out of bounds.
    pub fn set_terms(&mut self, cost: i64, max_wait: Option<Micros>, factor: f64) -> Result<(), Invalid> {
        request::check_bounds(cost, max_wait, factor)?;
        (self.cost, self.max_wait, self.factor) = (cost, max_wait, factor);
        Ok(())
    }

    /// Adds to `levels`, which must be empty, the limits that the request meets under the policy and its overrides,
    /// root first. With `keep_removed`, limits that an override removes stay, next to the states that overrides in
    /// force give or replace, so that reservations can settle them. Returns the effect of a refusal by one limit on the
    /// others, and the override that acts on the request.
    #[inline]
    pub(super) fn resolve<'a>(
        &'a self,
        policy: &'a Policy,
        keep_removed: bool,
        levels: &mut Levels<'a>,
    ) -> Result<(Charge, Option<Overridden<'a>>), CheckError> {
        let charge = self.add_written(policy, levels)?;
        Ok((charge, self.override_levels(policy, levels, keep_removed)))
    }

    /// Applies the overrides that act on the key to `levels`.
    #[inline]
    pub(super) fn override_levels<'a>(
        &self,
        policy: &'a Policy,
        levels: &mut Levels<'a>,
        keep_removed: bool,
    ) -> Option<Overridden<'a>> {
        let active = policy.overrides().active(&self.domain, self.key.segments())?;
        match active.ban() {
            Some(ban) if !keep_removed => {
                levels.clear();
                Some(ban)
            }
            _ if self.spec.is_some() => None,
            _ => active.change(levels, self.factor, keep_removed),
        }
    }

    /// Adds the levels without overrides, and returns the effect of a refusal by one limit on the others.
    #[inline]
    fn add_written<'a>(&'a self, policy: &'a Policy, levels: &mut Levels<'a>) -> Result<Charge, CheckError> {
        match (&self.spec, policy.domain(&self.domain)) {
            (Some(_), domain) if !policy.allows_spec(domain) => Err(CheckError::SpecDenied(self.domain.to_string())),
            (Some(spec), domain) => {
                let anchor = domain.map(|domain| domain.anchor);
                let added = spec.add_levels(levels, &self.key, anchor, self.cost, self.factor);
                added.map_err(|error| Invalid::Factor(self.factor, error))?;
                Ok(spec.charge)
            }
            (None, Some(domain)) => {
                self.add_levels(domain, levels)?;
                Ok(domain.charge)
            }
            (None, None) if policy.is_awaited() => Err(CheckError::NoPolicy),
            (None, None) => Err(CheckError::UnknownDomain(self.domain.to_string())),
        }
    }

    /// Builds the plan under the policy of this version. `keep_removed`: see [`Self::resolve`].
    pub(super) fn plan<'a>(
        &'a self,
        policy: &'a Policy,
        version: u64,
        keep_removed: bool,
    ) -> Result<Plan<'a>, CheckError> {
        let mut plan = Plan::default();
        self.plan_into(&mut plan, policy, version, keep_removed)?;
        Ok(plan)
    }

    /// Builds the plan in place of a default one.
    #[inline]
    pub(super) fn plan_into<'a>(
        &'a self,
        plan: &mut Plan<'a>,
        policy: &'a Policy,
        version: u64,
        keep_removed: bool,
    ) -> Result<(), CheckError> {
        let (charge, overridden) = plan.change_levels(|levels| self.resolve(policy, keep_removed, levels))?;
        (plan.charge, plan.max_wait) = (self.charge.unwrap_or(charge), self.max_wait);
        let domain = policy.domain(&self.domain);
        apply_domain(plan, domain);
        let is_identified = self.spec.is_none() && is_path_unique(domain, overridden, self.key.segments());
        plan.policy_version = is_identified.then_some(version);
        if self.spec.is_some() {
            plan.enforce_as_written();
        }
        plan.dry_run = self.dry_run;
        plan.overridden = overridden;
        plan.request = self.id.as_ref();
        Ok(())
    }

    /// Returns the limits of the domain's policy that the request meets.
    pub(super) fn levels<'a>(&'a self, domain: &'a Domain) -> Result<Levels<'a>, Invalid> {
        let mut levels = Levels::new();
        self.add_levels(domain, &mut levels)?;
        Ok(levels)
    }

    #[inline]
    fn add_levels<'a>(&'a self, domain: &'a Domain, levels: &mut Levels<'a>) -> Result<(), Invalid> {
        let added = domain.add_levels(levels, &self.key, self.cost, self.factor);
        added.map_err(|error| Invalid::Factor(self.factor, error))
    }

    /// Whether any limit applies to its key, or would if a factor of 0 did not lift it.
    #[cold]
    pub(super) fn is_matched(&self, policy: &Policy) -> bool {
        match (&self.spec, policy.domain(&self.domain)) {
            (Some(spec), _) => !spec.is_empty(),
            (None, domain) => domain.is_some_and(|domain| domain.is_matched(&self.key)),
        }
    }

    /// Returns the anchor of the key: the number of leading segments that determine where its states are stored.
    pub(super) fn anchor(&self, policy: &Policy) -> u8 {
        policy.domain(&self.domain).map_or(DEFAULT_ANCHOR, |domain| domain.anchor)
    }
}

/// Rejects a check if a concurrency limit refuses checks.
#[inline]
pub(super) fn ensure_checkable(plan: &Plan<'_>) -> Result<(), CheckError> {
    match plan.refuses_checks() {
        None => Ok(()),
        Some(limit) => Err(CheckError::NotCheckable(limit.name.to_string())),
    }
}

/// Whether no other key with other limits has the path of this key's levels. Keys that count together (`share_threshold`)
/// have one path, and an override may act on some of them only.
#[inline]
pub(super) fn is_path_unique<'s>(
    domain: Option<&Domain>,
    overridden: Option<Overridden<'_>>,
    segments: impl Iterator<Item = &'s [u8]>,
) -> bool {
    overridden.is_none() || !domain.is_some_and(|domain| domain.shares_counts(segments))
}

/// Returns a plan with the settings of a domain, if a policy defines it.
pub(super) fn plan_in<'a>(
    domain: Option<&Domain>,
    levels: Levels<'a>,
    charge: Charge,
    max_wait: Option<Micros>,
) -> Plan<'a> {
    let mut plan = Plan::new(levels, charge, max_wait);
    apply_domain(&mut plan, domain);
    plan
}

#[inline]
fn apply_domain(plan: &mut Plan<'_>, domain: Option<&Domain>) {
    plan.on_store_failure = domain.map(|domain| domain.on_store_failure).unwrap_or_default();
    plan.domain = domain.map(|domain| domain.index);
    if let Some(domain) = domain {
        (plan.is_shadow, plan.retry_jitter) = (domain.shadow, domain.retry_jitter);
    }
}
