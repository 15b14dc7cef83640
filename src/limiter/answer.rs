//! The answer to a request.

use smallvec::SmallVec;
use weir_core::{
    domain::{Decision, Micros, Summary, aggregate},
    hold::Idempotency,
    plan::{Ban, Level, Limit, Overridden, Plan},
};
use weir_store::Verdict;

/// The answer to one request. The default is the answer to a request that meets no limit.
#[derive(Debug, Default)]
pub struct Answer<'a> {
    /// The combined decision of the levels that are not in shadow mode, or the decision of a ban.
    pub summary: Summary,
    /// The decision of each level, root first.
    pub levels: SmallVec<[LevelAnswer<'a>; 4]>,
    /// Whether it was decided without the shared store.
    pub degraded: bool,
    /// Whether it was decided from units that this replica leases from the shared store.
    pub leased: bool,
    /// Whether it is the stored answer to an earlier request with the same id.
    pub repeated: bool,
    /// The override that acts on the request.
    pub overridden: Option<Overridden<'a>>,
    /// The index of the domain in its policy; `None` if no policy defines it.
    pub domain: Option<u32>,
}

/// The decision of one level.
#[derive(Debug)]
pub struct LevelAnswer<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// Number of key segments that the limit covers.
    pub depth: u8,
    /// Whether it is in shadow mode, its own or its domain's.
    pub shadow: bool,
    /// Its decision, including the retry jitter.
    pub decision: Decision,
    /// Its window, under the request's factor: see [`Algorithm::window`](weir_core::algorithm::Algorithm::window).
    pub window: Micros,
}

impl<'a> Answer<'a> {
    /// Fills in the decisions of `levels`, which are the first ones of the plan.
    #[inline]
    pub(super) fn fill(&mut self, plan: &Plan<'a>, levels: &[Level<'a>], verdict: &Verdict) {
        self.fill_part(plan, levels, verdict, &verdict.decisions);
    }

    /// Fills in the decisions of any levels of the plan.
    #[inline]
    pub(super) fn fill_part(
        &mut self,
        plan: &Plan<'a>,
        levels: &[Level<'a>],
        verdict: &Verdict,
        decisions: &[Decision],
    ) {
        let decided = levels.iter().zip(decisions);
        self.levels.extend(decided.map(|(level, decision)| LevelAnswer::new(plan, level, decision)));
        self.summary = aggregate(self.levels.iter().map(|level| (&level.decision, level.shadow)));
        (self.domain, self.degraded, self.leased) = (plan.domain, verdict.degraded, verdict.leased);
        self.repeated = verdict.idempotency == Idempotency::Repeated;
        self.set_overridden(plan.overridden);
    }

    /// Sets the override. A ban replaces the combined decision.
    #[inline]
    pub(super) fn set_overridden(&mut self, overridden: Option<Overridden<'a>>) {
        self.overridden = overridden;
        if let Some(ban) = overridden.and_then(|overridden| overridden.ban) {
            self.summary = Summary { decision: refusal(&ban), binding: None };
        }
    }
}

/// Returns the decision of a ban: a refusal until the ban ends.
pub(super) fn refusal(ban: &Ban<'_>) -> Decision {
    Decision::refuse(0, 0, ban.ends_after, ban.ends_after.unwrap_or_default())
}

impl Answer<'_> {
    /// Returns the ban that refused the request.
    pub fn ban(&self) -> Option<Ban<'_>> {
        self.overridden?.ban
    }
}

impl<'a> LevelAnswer<'a> {
    #[inline]
    pub(super) fn new(plan: &Plan<'a>, level: &Level<'a>, decision: &Decision) -> Self {
        let Level { limit, depth, .. } = *level;
        let mut decision = *decision;
        if plan.retry_jitter > 0.0
            && let Some(retry) = &mut decision.retry_after
        {
            *retry = retry.saturating_add((*retry as f64 * plan.retry_jitter * level.jitter_fraction()) as Micros);
        }
        Self { limit, depth, shadow: limit.shadow || plan.is_shadow, decision, window: level.params().window() }
    }
}
