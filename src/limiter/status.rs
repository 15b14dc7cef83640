//! Decides the descriptors of a request, and answers each.

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
    decide::{Checking, Fill, decide},
    descriptors::{MetLimit, Resolved, ResolvedDescriptor},
    policy_handle::PolicyHandle,
};
use crate::telemetry::{Meters, Metrics};

/// The answer to a request of Envoy's.
#[derive(Debug, Default)]
pub struct DescriptorAnswers<'a> {
    /// One for each descriptor, in their order.
    pub statuses: Vec<DescriptorAnswer<'a>>,
    /// The moment of the decision, by the store's clock; 0 where it was not asked.
    pub at: Micros,
    /// Decided without the shared store.
    pub degraded: bool,
    /// A policy defines the domain.
    pub domain_found: bool,
}

/// The answer to one descriptor.
#[derive(Debug)]
pub struct DescriptorAnswer<'a> {
    /// Whether it is over its limit: what `code` says. Never so where its rule only watches (`shadow_mode`).
    pub over: bool,
    /// It meets a rule that says `unlimited`.
    pub unlimited: bool,
    /// It has a limit, and its rule is one of those that refuse a request only when all of them are over.
    pub quota: bool,
    /// The limit to be shown, where any was met.
    pub shown: Option<Shown<'a>>,
    /// The decision of each limit, root first.
    pub levels: SmallVec<[LevelAnswer<'a>; 2]>,
    /// The same over all that count.
    pub summary: Summary,
    /// The rule of the descriptor, where the domain's file is one of descriptors and has one: without an override,
    /// and where not all its limits are replaced.
    pub rule: Option<&'a Rule>,
    /// The override that acts on it.
    pub overridden: Option<Overridden<'a>>,
    /// Units to charge, as the request says.
    pub hits: i64,
}

/// The binding limit of a descriptor, as Envoy shows limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// In a file of descriptors the name that it was given, or nothing; else the limit's name.
    pub name: &'a str,
    /// The most units at once.
    pub requests_per_unit: u32,
    /// The unit, where its window is exactly one.
    pub unit: Option<Unit>,
    /// Units left.
    pub remaining: u32,
    /// Of a fixed window, the time until its end, whatever is used of it. Of others the time until the request would pass,
    /// where it is refused and ever would, else until the limit is as new.
    pub until_reset: Micros,
}

impl DescriptorAnswers<'_> {
    /// The answer to the whole request: no descriptor is over, those with a quota set apart, and of these not all are.
    /// With `quota_mode` every descriptor counts as one with a quota, but those that are unlimited.
    pub fn allowed(&self, quota_mode: bool) -> bool {
        let (mut quotas, mut quotas_over) = (0, 0);
        for status in &self.statuses {
            if status.quota || (quota_mode && !status.unlimited) {
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
    /// The status of a descriptor whose levels were decided so at `at`.
    pub(super) fn new(
        found: &'a ResolvedDescriptor<'_>,
        plan: &Plan<'a>,
        decided: SmallVec<[(&Level<'a>, &Decision); 2]>,
        at: Micros,
    ) -> Self {
        let rule = found.rule;
        let level = |((level, decision), met): (&(&Level<'a>, &Decision), MetLimit<'_>)| {
            let mut answer = LevelAnswer::new(plan, level, decision);
            if rule.is_some() {
                answer.shadow = found.watches(&met);
            }
            answer
        };
        let levels: SmallVec<[_; 2]> = decided.iter().zip(found.limits()).map(level).collect();
        // A rule that watches says how its limits stand as if it did not.
        let stands_aside = |level: &LevelAnswer<'_>| level.shadow && !rule.is_some_and(|rule| rule.shadow);
        let mut summary = aggregate(levels.iter().map(|level| (&level.decision, stands_aside(level))));
        let ban = found.overridden.and_then(|overridden| overridden.ban);
        if let Some(ban) = &ban {
            summary.decision = refusal(ban);
        }
        let shown = summary.binding.zip(found.limits().nth(summary.binding.unwrap_or_default()));
        let shown = shown.map(|(index, met)| Shown::new(&levels[index], &met, decided[index].0.phase(), at));
        Self {
            over: ban.is_some() || !summary.decision.allowed && !rule.is_some_and(|rule| rule.shadow),
            overridden: found.overridden,
            unlimited: ban.is_none() && rule.is_some_and(|rule| rule.unlimited),
            quota: shown.is_some() && rule.is_some_and(|rule| rule.quota),
            shown,
            levels,
            summary,
            rule,
            hits: found.descriptor.hits,
        }
    }
}

impl DescriptorAnswer<'_> {
    /// Whether it meets a limit, or a rule that says `unlimited`.
    fn is_matched(&self) -> bool {
        self.unlimited || !self.levels.is_empty() || self.overridden.is_some()
    }
}

impl<'a> Shown<'a> {
    fn new(level: &LevelAnswer<'a>, met: &MetLimit<'a>, phase: Micros, at: Micros) -> Self {
        let LevelAnswer { limit, decision, .. } = level;
        let name = match met.written {
            Some(written) => written.name.as_deref().unwrap_or_default(),
            None if limit.is_override() => "",
            None => &limit.name,
        };
        let capped = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let window = match &limit.params {
            Params::FixedWindow(window) => Some(window),
            _ => None,
        };
        let until_reset = match window {
            // Refused without reading the count.
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
    /// Counts what each limit has decided and done, under the request's values where the file asks for that.
    pub(super) fn count(
        &self,
        meters: &Meters,
        metrics: &Metrics,
        statuses: &[DescriptorAnswer<'_>],
        mut effects: impl Iterator<Item = Effect>,
    ) {
        for (found, status) in self.descriptors.iter().zip(statuses) {
            let values = self.domain.zip(status.rule).and_then(|(domain, _)| {
                let entries = found.descriptor.entries.iter().map(|(key, value)| (&**key, &**value));
                resolve::values_in_metrics(domain, domain.descriptors.as_deref()?, entries)
            });
            for (met, LevelAnswer { limit, shadow, decision, .. }) in found.limits().zip(&status.levels) {
                let effect = effects.next().unwrap_or_default();
                match (&values, self.domain, met.written) {
                    (Some(values), Some(domain), Some(RuleLimit { kind, .. })) => {
                        let meter = metrics.valued_limit(&domain.name, &format!("{values}#{kind}"));
                        meter.count(decision, *shadow, effect);
                    }
                    _ => {
                        let index = (!limit.is_override()).then_some(limit.index);
                        meters.limit(index, decision, *shadow, effect);
                    }
                }
            }
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Decides every descriptor of a request, in one step: a status for each, in their order. It fails where the store has no
    /// answer and the domain says `error`, and for nothing else.
    pub fn check_descriptors<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Resolved<'_>,
    ) -> Checking<'l, 'a, DescriptorAnswers<'a>, impl Fill<'a, DescriptorAnswers<'a>>> {
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
            request.count(&handle.meters, &self.metrics, &answer.statuses, verdict.effects(plan));
            self.sample_descriptors(request, &answer.statuses);
            for overridden in answer.statuses.iter().filter_map(|status| status.overridden) {
                handle.meters.overridden(plan.domain, overridden.change);
            }
            if !answer.statuses.iter().any(DescriptorAnswer::is_matched) {
                handle.meters.unmatched(plan.domain);
            }
            (answer.at, answer.degraded) = (verdict.at, verdict.degraded);
            answer.domain_found = request.domain.is_some();
        };
        decide(&self.store, Ok(request.plan(handle.version)), fill)
    }
}
