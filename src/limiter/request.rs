//! One question, checked, and the plan that answers it.

use std::{borrow::Cow, sync::Arc};

use thiserror::Error;
use weir_core::{
    algorithm::ParamError,
    domain::{AskError, Charge, Key, KeyError, Micros, ask},
    hold::RequestId,
    plan::{Levels, Overridden, Plan},
};
use weir_policy::{Domain, Policy, Spec, SpecError, tree::DEFAULT_ANCHOR};
use weir_store::StoreError;

/// A request that may be decided.
#[derive(Debug)]
pub struct Request<'a> {
    /// The domain's name.
    pub domain: Cow<'a, str>,
    /// The key, which holds the domain too.
    pub key: Key,
    /// Units to charge.
    pub cost: i64,
    /// The longest wait that the caller accepts; `None`: it did not say.
    pub max_wait: Option<Micros>,
    /// Divides the limits; 0 lifts them.
    pub factor: f64,
    /// The request's own limits.
    pub spec: Option<Arc<Spec>>,
    /// What a refusal by one limit does to the others; default: as the policy or the spec says.
    pub charge: Option<Charge>,
    /// Decide as always, but charge nothing and change no state.
    pub dry_run: bool,
    /// The caller's own id of it.
    pub id: Option<RequestId>,
}

/// What is wrong with a request.
#[derive(Debug, Error)]
pub enum Invalid {
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The cost, wait or factor.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The limits that it brings.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A limit that the factor takes beyond its bounds.
    #[error("factor {0:?} takes a limit beyond its bounds: {1}")]
    Factor(f64, ParamError),
    /// In one of several checks, by its number.
    #[error("{1}")]
    Check(usize, Box<Self>),
    /// Something else in a field of the message.
    #[error("{message}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong with it.
        message: String,
    },
}

/// Why a request has no answer.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The request is not valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No policy defines the domain.
    #[error("no policy defines the domain `{0}`")]
    UnknownDomain(String),
    /// The control plane has not sent a policy yet.
    #[error("no policy has been received yet")]
    NoPolicy,
    /// Requests of the domain may not bring limits of their own.
    #[error("limit_spec is denied in the domain `{0}`: the limits of the policy apply")]
    SpecDenied(String),
    /// A limit on the path cannot be reserved.
    #[error("{0} cannot be reserved: {1}")]
    NotReservable(String, &'static str),
    /// A concurrency limit that refuses checks.
    #[error("a check takes no slot of the concurrency limit `{0}`: use Reserve, or `check: peek` in the policy")]
    NotCheckable(String),
    /// The reservation does not exist.
    #[error("no such reservation: it was never made, is over, or is another client's")]
    UnknownReservation,
    /// The shared store did not settle a reservation.
    #[error("the store did not settle the reservation")]
    NotSettled,
    /// The client is not authenticated, and resets need that.
    #[error("only authenticated clients may reset keys (setting `reset`)")]
    ResetDenied,
    /// The store has no answer.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

impl Invalid {
    /// Something wrong with a field.
    pub fn field_error(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Field { field: field.into(), message: message.into() }
    }

    /// The same, in one of several checks.
    #[must_use]
    pub fn in_check(self, index: usize) -> Self {
        Self::Check(index, Box::new(self))
    }

    /// The field at fault; those of the request's own limits begin at `spec`, the field that holds them.
    pub fn field(&self, spec: &str) -> String {
        match self {
            Self::Key(error) => error.field(),
            Self::Ask(error) => error.field().to_owned(),
            Self::Spec(error) => format!("{spec}{}", error.field()),
            Self::Factor(..) => "factor".to_owned(),
            Self::Check(index, invalid) => format!("checks[{index}].{}", invalid.field(spec)),
            Self::Field { field, .. } => field.clone(),
        }
    }
}

impl<'n> Request<'n> {
    /// A request for one unit under the domain's policy.
    ///
    /// # Errors
    /// [`Invalid`] names what is wrong with the key.
    #[inline]
    pub fn new<T: AsRef<str>>(domain: &'n str, segments: &[T]) -> Result<Self, Invalid> {
        let key = Key::new(domain, segments)?;
        let (cost, factor) = (1, 1.0);
        let (max_wait, spec, charge, dry_run, id) = (None, None, None, false, None);
        Ok(Self { domain: Cow::Borrowed(domain), key, cost, max_wait, factor, spec, charge, dry_run, id })
    }

    /// The same, borrowing nothing.
    pub fn into_owned(self) -> Request<'static> {
        Request { domain: Cow::Owned(self.domain.into_owned()), ..self }
    }

    /// Asks for other terms.
    ///
    /// # Errors
    /// [`Invalid`] names the term that is out of bounds.
    pub fn set_terms(&mut self, cost: i64, max_wait: Option<Micros>, factor: f64) -> Result<(), Invalid> {
        ask::check_bounds(cost, max_wait, factor)?;
        (self.cost, self.max_wait, self.factor) = (cost, max_wait, factor);
        Ok(())
    }

    /// Puts the limits into `levels`, empty before, that it meets by a policy and its overrides, root first. Those that an override
    /// takes away are `kept` for what settles. Returns what a refusal by one does to the others, and the override that acts on them.
    #[inline]
    pub(super) fn resolve<'a>(
        &'a self,
        policy: &'a Policy,
        kept: bool,
        levels: &mut Levels<'a>,
    ) -> Result<(Charge, Option<Overridden<'a>>), CheckError> {
        let charge = self.add_written(policy, levels)?;
        Ok((charge, self.override_levels(policy, levels, kept)))
    }

    /// Changes levels as the overrides say that act on the key.
    #[inline]
    pub(super) fn override_levels<'a>(
        &self,
        policy: &'a Policy,
        levels: &mut Levels<'a>,
        kept: bool,
    ) -> Option<Overridden<'a>> {
        let acting = policy.overrides().acting(&self.domain, self.key.segments())?;
        match acting.ban() {
            Some(ban) if !kept => {
                levels.clear();
                Some(ban)
            }
            _ if self.spec.is_some() => None,
            _ => acting.change(levels, self.factor, kept),
        }
    }

    /// The same without overrides.
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

    /// The plan by the policy of this version. One that settles what was reserved is `kept` from overrides that take levels away.
    pub(super) fn plan<'a>(&'a self, policy: &'a Policy, version: u64, kept: bool) -> Result<Plan<'a>, CheckError> {
        let mut plan = Plan::default();
        self.plan_into(&mut plan, policy, version, kept)?;
        Ok(plan)
    }

    /// The same in place of a default one.
    #[inline]
    pub(super) fn plan_into<'a>(
        &'a self,
        plan: &mut Plan<'a>,
        policy: &'a Policy,
        version: u64,
        kept: bool,
    ) -> Result<(), CheckError> {
        let (charge, overridden) = plan.change_levels(|levels| self.resolve(policy, kept, levels))?;
        (plan.charge, plan.max_wait) = (self.charge.unwrap_or(charge), self.max_wait);
        apply_domain(plan, policy.domain(&self.domain));
        plan.policy_version = self.spec.is_none().then_some(version);
        if self.spec.is_some() {
            plan.enforce_as_written();
        }
        plan.dry_run = self.dry_run;
        plan.overridden = overridden;
        plan.request = self.id.as_ref();
        Ok(())
    }

    /// The limits of its domain's policy that it meets.
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

    /// Whether any limit is meant for its key, also one that a factor of 0 lifts.
    #[cold]
    pub(super) fn is_matched(&self, policy: &Policy) -> bool {
        match (&self.spec, policy.domain(&self.domain)) {
            (Some(spec), _) => !spec.is_empty(),
            (None, domain) => domain.is_some_and(|domain| domain.is_matched(&self.key)),
        }
    }

    /// How many segments name the place of this key's states.
    pub(super) fn anchor(&self, policy: &Policy) -> u8 {
        policy.domain(&self.domain).map_or(DEFAULT_ANCHOR, |domain| domain.anchor)
    }
}

/// Rejects a check where a limit refuses checks.
#[inline]
pub(super) fn ensure_checkable(plan: &Plan<'_>) -> Result<(), CheckError> {
    match plan.refuses_checks() {
        None => Ok(()),
        Some(limit) => Err(CheckError::NotCheckable(limit.name.to_string())),
    }
}

/// A plan under the rules of a domain, where a policy defines it.
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
