//! Envoy's rate-limit requests: several descriptors, each with its own status, all decided in one plan.
//!
//! No request is rejected because of a descriptor's content: if the call fails, Envoy lets the request pass. Envoy's
//! configuration determines the number of descriptors, so too many are an error; they are never decided in part. A
//! descriptor that would take the request beyond [`MAX_LIMITS`] gets no limit, and is counted.

use smallvec::SmallVec;
use weir_core::{
    algorithm::{Params, fixed_window::FixedWindow},
    domain::{Charge, Key, Unit, request::MAX_COST},
    plan::{Level, Limit, Origin, Overridden, Plan},
};
use weir_policy::{
    Domain, Overrides, Policy,
    descriptors::{self, Rule, RuleLimit},
    overrides::{Applied, Change},
};

use super::{
    Invalid,
    request::{is_path_unique, plan_in},
};

/// Maximum number of descriptors in a request.
pub const MAX_DESCRIPTORS: usize = 1_000;
/// Maximum number of limits that are decided for a request. A descriptor that would exceed it gets no limit.
pub const MAX_LIMITS: usize = 2_000;

/// A request of Envoy's rate-limit service (`ShouldRateLimit`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorsRequest {
    /// The domain's name. Empty: the default domain, which the RLS surface rejects, as envoyproxy/ratelimit does.
    pub domain: String,
    /// The descriptors. Each gets a status.
    pub descriptors: Vec<Descriptor>,
}

/// One descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Keys and values, in order: of any number and length, empty ones included.
    pub entries: Vec<(String, String)>,
    /// Units to charge: 0 is a preview, a negative number a refund. Values beyond ±2^32 count as ±2^32.
    pub hits: i64,
    /// A limit to use in place of the policy's.
    pub over: Option<DescriptorLimit>,
}

/// A limit given in the descriptor itself. The decoder skips limits with an unknown unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// Maximum hits in each unit of time. 0 admits none.
    pub requests_per_unit: u32,
    /// The unit of time.
    pub unit: Unit,
}

/// A request with the limits that apply to it.
#[derive(Debug)]
pub struct Resolved<'a> {
    request: &'a DescriptorsRequest,
    pub(super) domain: Option<&'a Domain>,
    pub(super) descriptors: Vec<ResolvedDescriptor<'a>>,
    pub(super) ignored: usize,
}

/// A descriptor with the limits that apply to it.
#[derive(Debug)]
pub(super) struct ResolvedDescriptor<'a> {
    pub descriptor: &'a Descriptor,
    pub rule: Option<&'a Rule>,
    /// The key of its states; `None` without limits.
    pub key: Option<Key>,
    limits: Limits<'a>,
    pub overridden: Option<Overridden<'a>>,
}

#[derive(Debug)]
enum Limits<'a> {
    /// The limits of the policy, root first.
    Policy(SmallVec<[MatchedLimit<'a>; 2]>),
    /// The limit given in the descriptor itself.
    Override(Box<Limit>),
}

/// A limit that applies to a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchedLimit<'a> {
    /// Number of key segments that the limit covers.
    pub depth: u8,
    pub limit: &'a Limit,
    /// The limit as written in a policy file with `descriptors`.
    pub rule_limit: Option<&'a RuleLimit>,
    /// Whether an override puts it in shadow mode.
    pub shadowed: bool,
}

impl Descriptor {
    fn segments(&self) -> impl Iterator<Item = &str> + Clone {
        self.entries.iter().flat_map(|(key, value)| [&**key, &**value])
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.entries.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns the key of its entries, which several descriptors never share.
    pub(super) fn key(&self, domain: &str) -> Key {
        Key::of_any(domain, self.segments())
    }
}

impl DescriptorsRequest {
    /// Resolves the limits that apply to the request under `policy`.
    ///
    /// # Errors
    /// [`Invalid`] for more than [`MAX_DESCRIPTORS`]. Nothing else.
    pub fn resolve<'a>(&'a self, policy: &'a Policy) -> Result<Resolved<'a>, Invalid> {
        if self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(Invalid::field_error("descriptors", format!("at most {MAX_DESCRIPTORS} descriptors")));
        }
        let domain = policy.domain(&self.domain);
        let resolve = |descriptor: &'a Descriptor| {
            let found = match domain {
                Some(domain) => ResolvedDescriptor::new(domain, descriptor),
                None => ResolvedDescriptor::without_limit(descriptor),
            };
            // A ban acts also in a domain that the policy does not have.
            found.overridden_by(policy.overrides(), &self.domain, descriptor.segments())
        };
        let mut descriptors: Vec<_> = self.descriptors.iter().map(resolve).collect();
        drop_replaced(&mut descriptors);
        let ignored = keep_to_bound(&mut descriptors);
        Ok(Resolved { request: self, domain, descriptors, ignored })
    }
}

/// Drops the limits that are named in `replaces` by any rule that the request meets, even by a rule that is `unlimited`
/// or whose own limits are dropped.
fn drop_replaced(descriptors: &mut [ResolvedDescriptor<'_>]) {
    let rule_limits = || descriptors.iter().filter_map(|found| found.rule).flat_map(|rule| &rule.limits);
    let replaced: Vec<&str> = rule_limits().flat_map(|limit| &limit.replaces).map(|name| &**name).collect();
    if replaced.is_empty() {
        return;
    }
    for found in descriptors {
        let (Some(rule), Limits::Policy(limits)) = (found.rule, &mut found.limits) else { continue };
        let is_replaced =
            |rule_limit: &RuleLimit| rule_limit.name.as_deref().is_some_and(|name| replaced.contains(&name));
        limits.retain(|matched| !matched.rule_limit.is_some_and(is_replaced));
        if limits.is_empty() && !rule.unlimited {
            found.rule = None;
        }
    }
}

/// Removes the limits of descriptors that exceed [`MAX_LIMITS`], and returns the number of these descriptors.
fn keep_to_bound(descriptors: &mut [ResolvedDescriptor<'_>]) -> usize {
    let (mut limits, mut ignored) = (0, 0);
    for found in descriptors {
        let count = found.limits().count();
        if limits + count > MAX_LIMITS {
            *found = ResolvedDescriptor::without_limit(found.descriptor);
            ignored += 1;
        } else {
            limits += count;
        }
    }
    ignored
}

impl<'a> ResolvedDescriptor<'a> {
    fn without_limit(descriptor: &'a Descriptor) -> Self {
        Self { descriptor, rule: None, key: None, limits: Limits::Policy(SmallVec::new()), overridden: None }
    }

    /// Applies the overrides that act on a key. A ban removes all limits; other changes do not affect a limit given
    /// in the descriptor itself.
    fn overridden_by<'k>(
        mut self,
        overrides: &'a Overrides,
        domain: &str,
        segments: impl Iterator<Item = &'k str> + Clone,
    ) -> Self {
        let Some(active) = overrides.active(domain, segments.map(str::as_bytes)) else { return self };
        self.overridden = active.ban();
        match &mut self.limits {
            limits if self.overridden.is_some() => *limits = Limits::Policy(SmallVec::new()),
            Limits::Override(_) => {}
            Limits::Policy(limits) => limits.retain(|matched| match active.at(matched.depth, matched.limit) {
                Applied::Unchanged => true,
                Applied::Lifted(by) => {
                    self.overridden = Some(by);
                    false
                }
                Applied::Changed(limit, by) => {
                    matched.shadowed = by.change == Change::Shadow.name();
                    (matched.limit, self.overridden) = (limit, Some(by));
                    true
                }
            }),
        }
        self
    }

    fn new(domain: &'a Domain, descriptor: &'a Descriptor) -> Self {
        if let Some(over) = descriptor.over {
            let key = descriptor.key(&domain.name);
            let limits = Limits::Override(Box::new(over.limit(domain)));
            return if descriptor.entries.is_empty() {
                Self::without_limit(descriptor)
            } else {
                Self { descriptor, rule: None, key: Some(key), limits, overridden: None }
            };
        }
        let Some(descriptors) = domain.descriptors.as_deref() else {
            let walked = domain.walk_along(descriptor.segments().map(str::as_bytes));
            let limits: SmallVec<_> = walked
                .flat_map(|(depth, _, node)| domain.limits_at(node).iter().map(move |limit| (depth as u8, limit)))
                .map(|(depth, limit)| MatchedLimit { depth, limit, rule_limit: None, shadowed: false })
                .collect();
            let key = (!limits.is_empty()).then(|| descriptor.key(&domain.name));
            return Self { descriptor, rule: None, key, limits: Limits::Policy(limits), overridden: None };
        };
        let Some(matched) = descriptors::resolve(domain, descriptors, descriptor.pairs()) else {
            return Self::without_limit(descriptor);
        };
        let limits = matched.rule.combined_limits(matched.limits);
        let depth = (2 * descriptor.entries.len()) as u8;
        let key = (!limits.is_empty()).then(|| descriptors::resolve::key(domain, descriptors, descriptor.pairs()));
        let pairs = limits.iter().zip(&matched.rule.limits);
        let limits = pairs.map(|(limit, rule_limit)| MatchedLimit {
            depth,
            limit,
            rule_limit: Some(rule_limit),
            shadowed: false,
        });
        let limits = Limits::Policy(limits.collect());
        Self { descriptor, rule: Some(matched.rule), key, limits, overridden: None }
    }

    /// Returns the same descriptor under the overrides alone that act on all values with its counts
    /// (`share_threshold`); `None` if it shares none.
    pub(super) fn of_all_values(&self, domain: &'a Domain, overrides: &'a Overrides) -> Option<Self> {
        let descriptors = domain.descriptors.as_deref()?;
        let segments = descriptors::resolve::common_segments(domain, descriptors, self.descriptor.pairs())?;
        Some(Self::new(domain, self.descriptor).overridden_by(overrides, &domain.name, segments.into_iter()))
    }

    /// Returns its limits, root first.
    pub(super) fn limits(&self) -> impl Iterator<Item = MatchedLimit<'_>> {
        let (policy, own) = match &self.limits {
            Limits::Policy(limits) => (Some(limits), None),
            Limits::Override(limit) => (None, Some(&**limit)),
        };
        let depth = self.key.as_ref().map_or(0, Key::depth) as u8;
        let own = own.map(|limit| MatchedLimit { depth, limit, rule_limit: None, shadowed: false });
        let policy = policy.into_iter().flatten();
        policy.map(|matched| MatchedLimit { ..*matched }).chain(own)
    }

    /// Returns whether a limit is in shadow mode. In a policy file with `descriptors` the rule decides that, not the
    /// limit's `shadow` in the plan.
    pub(super) fn is_shadow(&self, matched: &MatchedLimit<'_>) -> bool {
        matched.shadowed || self.rule.map_or(matched.limit.shadow, |rule| rule.shadow)
    }

    /// Returns its limits that are not in shadow mode.
    pub(super) fn enforced(&self) -> impl Iterator<Item = MatchedLimit<'_>> {
        self.limits().filter(|matched| !self.is_shadow(matched))
    }

    pub(super) fn is_override(&self) -> bool {
        matches!(self.limits, Limits::Override(_))
    }

    fn has_unique_path(&self, domain: Option<&Domain>) -> bool {
        is_path_unique(domain, self.overridden, self.descriptor.segments().map(str::as_bytes))
    }

    fn hits(&self) -> i64 {
        self.descriptor.hits.clamp(-MAX_COST, MAX_COST)
    }
}

impl DescriptorLimit {
    /// Returns the limit: a fixed window of one unit. It charges refused requests, unless the domain charges all or
    /// nothing; there, as one with `quota_mode`, it refuses no request on its own.
    fn limit(self, domain: &Domain) -> Limit {
        let charge_denied = domain.charge != Charge::AllOrNothing;
        let window = FixedWindow::in_unit(self.requests_per_unit, self.unit.micros(), charge_denied);
        let shadow = !charge_denied && domain.is_in_quota_mode();
        Limit::new(Origin::Override, None, "override", 0, shadow, Params::FixedWindow(window))
    }
}

impl Resolved<'_> {
    /// Returns the key of the first banned descriptor.
    pub(super) fn banned(&self) -> Option<Key> {
        let found = self.descriptors.iter().find(|found| found.overridden.is_some_and(|it| it.ban.is_some()))?;
        Some(found.descriptor.key(&self.request.domain))
    }

    /// Builds the plan under the policy of this version.
    pub(super) fn plan<'r>(&'r self, version: u64) -> Plan<'r> {
        let anchor = self.domain.map_or(0, |domain| domain.anchor);
        let mut levels = SmallVec::new();
        for found in &self.descriptors {
            let Some(key) = &found.key else { continue };
            let level = |matched: MatchedLimit<'r>| Level::new(key, matched.depth, anchor, matched.limit, found.hits());
            levels.extend(found.limits().map(level));
        }
        let charge = self.domain.map_or_else(Charge::default, |domain| domain.charge);
        // Envoy cannot delay a request.
        let mut plan = plan_in(self.domain, levels, charge, Some(0));
        // A ban refuses the whole request, which charges nothing.
        plan.dry_run = self.banned().is_some();
        // With several descriptors, the path of one does not identify the levels of the others.
        let is_identified =
            matches!(&self.descriptors[..], [found] if !found.is_override() && found.has_unique_path(self.domain));
        plan.policy_version = is_identified.then_some(version);
        plan
    }
}
