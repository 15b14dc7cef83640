//! Decides the descriptors of a request, and returns a status for each.

use smallvec::SmallVec;
use weir_core::{
    algorithm::Params,
    domain::{Decision, Micros, Summary, Unit, aggregate},
    plan::{Level, Overridden, Plan},
};
use weir_policy::descriptors::{Rule, RuleLimit, resolve};
use weir_store::{Effect, Store, Verdict};

use super::{
    Limiter,
    answer::{LevelAnswer, refusal},
    decide::{Fill, PendingCheck, decide},
    descriptors::{MatchedLimit, Resolved, ResolvedDescriptor},
    policy_handle::PolicyHandle,
};
use crate::telemetry::{Metrics, PolicyCounters};

/// The answer to a request of Envoy's rate-limit service.
#[derive(Debug, Default)]
pub struct DescriptorAnswers<'a> {
    /// One for each descriptor, in their order.
    pub statuses: Vec<DescriptorAnswer<'a>>,
    /// Whether it was decided without the shared store.
    pub degraded: bool,
    /// Whether every descriptor except unlimited and banned ones counts as one with a quota.
    pub quota_mode: bool,
}

/// The answer to one descriptor.
#[derive(Debug)]
pub struct DescriptorAnswer<'a> {
    /// Whether it is over its limit, as `code` reports. A rule in shadow mode (`shadow_mode`) is over only by a ban.
    pub over: bool,
    /// Whether its rule says `unlimited`, and no ban applies.
    pub unlimited: bool,
    /// Whether it has a limit and its rule is a quota. Quotas refuse a request only when all of them are over.
    pub quota: bool,
    /// The limit to show, if any applies.
    pub displayed: Option<DisplayedLimit<'a>>,
    /// The decision of each limit, root first.
    pub levels: SmallVec<[LevelAnswer<'a>; 2]>,
    /// The combined decision of the limits that are not in shadow mode. If the whole rule is in shadow mode, of all its
    /// limits.
    pub summary: Summary,
    /// The rule of the descriptor in a policy file with `descriptors`. `None` if the descriptor gives its own limit, or
    /// if all limits of the rule are replaced.
    pub rule: Option<&'a Rule>,
    /// The override that acts on the descriptor.
    pub overridden: Option<Overridden<'a>>,
}

/// The binding limit of a descriptor, as Envoy shows limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayedLimit<'a> {
    /// The limit's name. Empty for a limit given in the descriptor, and for an unnamed one in a policy file with
    /// `descriptors`.
    pub name: &'a str,
    /// Maximum units in one burst, capped at `u32::MAX`.
    pub requests_per_unit: u32,
    /// The unit of time, if the limit's window is exactly one unit.
    pub unit: Option<Unit>,
    /// Units remaining, capped at `u32::MAX`.
    pub remaining: u32,
    /// For a fixed window, the time until it ends, however much of it is used. For other limits, the time until the
    /// request would pass if it is refused and can ever pass, else until the limit is full again.
    pub until_reset: Micros,
}

impl DescriptorAnswers<'_> {
    /// Returns whether the request is allowed: no descriptor without a quota is over, and not all descriptors with a
    /// quota are.
    pub fn allowed(&self) -> bool {
        let (mut quotas, mut quotas_over) = (0, 0);
        for status in &self.statuses {
            let is_banned = status.overridden.is_some_and(|overridden| overridden.ban.is_some());
            if status.quota || (self.quota_mode && !status.unlimited && !is_banned) {
                quotas += 1;
                quotas_over += usize::from(status.over);
            } else if status.over {
                return false;
            }
        }
        quotas == 0 || quotas_over < quotas
    }
}

impl<'a> DescriptorAnswer<'a> {
    /// Returns the status of a descriptor from the decisions on its levels at the time `at`.
    pub(super) fn new(
        found: &'a ResolvedDescriptor<'_>,
        plan: &Plan<'a>,
        decided: SmallVec<[(&Level<'a>, &Decision); 2]>,
        at: Micros,
    ) -> Self {
        let rule = found.rule;
        let level = |((level, decision), matched): (&(&Level<'a>, &Decision), MatchedLimit<'_>)| {
            let mut answer = LevelAnswer::new(plan, level, decision);
            if rule.is_some() {
                answer.shadow = found.is_shadow(&matched);
            } else if found.is_override() {
                answer.shadow = plan.is_shadow;
            }
            answer
        };
        let levels: SmallVec<[_; 2]> = decided.iter().zip(found.limits()).map(level).collect();
        // A rule in shadow mode reports its limits as if they were enforced.
        let stands_aside = |level: &LevelAnswer<'_>| level.shadow && !rule.is_some_and(|rule| rule.shadow);
        let mut summary = aggregate(levels.iter().map(|level| (&level.decision, stands_aside(level))));
        let ban = found.overridden.and_then(|overridden| overridden.ban);
        if let Some(ban) = &ban {
            summary.decision = refusal(ban);
        }
        let displayed = summary.binding.zip(found.limits().nth(summary.binding.unwrap_or_default()));
        let displayed = displayed
            .map(|(index, matched)| DisplayedLimit::new(&levels[index], &matched, decided[index].0.phase(), at));
        Self {
            over: ban.is_some() || !summary.decision.allowed && !rule.is_some_and(|rule| rule.shadow),
            overridden: found.overridden,
            unlimited: ban.is_none() && rule.is_some_and(|rule| rule.unlimited),
            quota: displayed.is_some() && rule.is_some_and(|rule| rule.quota),
            displayed,
            levels,
            summary,
            rule,
        }
    }
}

impl DescriptorAnswer<'_> {
    /// Whether a limit, a rule that says `unlimited` or an override applies to it.
    fn is_matched(&self) -> bool {
        self.unlimited || !self.levels.is_empty() || self.overridden.is_some()
    }
}

impl<'a> DisplayedLimit<'a> {
    fn new(level: &LevelAnswer<'a>, matched: &MatchedLimit<'a>, phase: Micros, at: Micros) -> Self {
        let LevelAnswer { limit, decision, .. } = level;
        let name = match matched.rule_limit {
            Some(rule_limit) => rule_limit.name.as_deref().unwrap_or_default(),
            None if limit.is_override() => "",
            None => &limit.name,
        };
        let capped = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let window = match &limit.params {
            Params::FixedWindow(window) => Some(window),
            _ => None,
        };
        let until_reset = match window {
            // Refused without reading the counter.
            Some(window) if decision.reset_after == 0 => {
                decision.retry_after.unwrap_or_else(|| window.until_end(at, phase))
            }
            Some(_) => decision.reset_after,
            None => decision.retry_after.unwrap_or(decision.reset_after),
        };
        Self {
            name,
            requests_per_unit: capped(decision.limit),
            unit: Unit::of(level.window),
            remaining: capped(decision.remaining),
            until_reset,
        }
    }
}

impl Resolved<'_> {
    /// Counts the decision and the effect of each limit, under the request's values if the policy file asks for that.
    pub(super) fn count(
        &self,
        counters: &PolicyCounters,
        metrics: &Metrics,
        statuses: &[DescriptorAnswer<'_>],
        mut effects: impl Iterator<Item = Effect>,
    ) {
        for (found, status) in self.descriptors.iter().zip(statuses) {
            let values = self.domain.zip(status.rule).and_then(|(domain, _)| {
                let entries = found.descriptor.entries.iter().map(|(key, value)| (&**key, &**value));
                resolve::values_in_metrics(domain, domain.descriptors.as_deref()?, entries)
            });
            for (matched, LevelAnswer { limit, shadow, decision, .. }) in found.limits().zip(&status.levels) {
                let effect = effects.next().unwrap_or_default();
                match (&values, self.domain, matched.rule_limit) {
                    (Some(values), Some(domain), Some(RuleLimit { kind, .. })) => {
                        let counters = metrics.valued_limit(&domain.name, &format!("{values}#{kind}"));
                        counters.count(decision, *shadow, effect);
                    }
                    _ => {
                        let index = (!limit.is_override()).then_some(limit.index);
                        counters.limit(index, decision, *shadow, effect);
                    }
                }
            }
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Decides all descriptors of a request in one step, and returns a status for each, in their order. Fails only if
    /// the store fails and the domain's `on_store_failure` is `error`.
    pub fn check_descriptors<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Resolved<'_>,
    ) -> PendingCheck<'l, 'a, DescriptorAnswers<'a>, impl Fill<'a, DescriptorAnswers<'a>>> {
        let fill = move |plan: &Plan<'a>, verdict: &Verdict, answer: &mut DescriptorAnswers<'a>| {
            handle.count_degraded(plan, verdict);
            if request.ignored > 0 {
                self.metrics.descriptors_ignored(request.ignored);
            }
            let mut decided = plan.levels().iter().zip(&verdict.decisions);
            answer.statuses.extend(request.descriptors.iter().map(|found| {
                let decided = decided.by_ref().take(found.limits().count());
                DescriptorAnswer::new(found, plan, decided.collect(), verdict.at)
            }));
            request.count(&handle.counters, &self.metrics, &answer.statuses, verdict.effects(plan));
            self.sample_descriptors(request, &answer.statuses);
            for overridden in answer.statuses.iter().filter_map(|status| status.overridden) {
                handle.counters.overridden(plan.domain, overridden.change);
            }
            if !answer.statuses.iter().any(DescriptorAnswer::is_matched) {
                handle.counters.unmatched(plan.domain);
            }
            answer.degraded = verdict.degraded;
            answer.quota_mode = request.domain.is_some_and(|domain| domain.is_in_quota_mode());
        };
        decide(&self.store, Ok(request.plan(handle.version)), fill)
    }
}
