//! The answer to a request.

use smallvec::SmallVec;
use weir_core::{
    domain::{Decision, Micros, Summary, aggregate},
    hold::Repeat,
    plan::{Ban, Level, Limit, Overridden, Plan},
};
use weir_store::Verdict;

/// The answer to one request; by default to one that met no limit.
#[derive(Debug, Default)]
pub struct Answer<'a> {
    /// The answer over all levels that count.
    pub summary: Summary,
    /// The decision of each level, root first.
    pub levels: SmallVec<[LevelAnswer<'a>; 4]>,
    /// Decided without the shared store.
    pub degraded: bool,
    /// Decided from units that this replica leases of the shared store.
    pub leased: bool,
    /// That to an earlier request of the same id.
    pub repeated: bool,
    /// The override that acted on it.
    pub overridden: Option<Overridden<'a>>,
    /// The number of the domain in its policy, where that defines it.
    pub domain: Option<u32>,
}

/// The decision of one level.
#[derive(Debug)]
pub struct LevelAnswer<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// How many segments it covers.
    pub depth: u8,
    /// Whether it only watches, by itself or as its domain does.
    pub shadow: bool,
    /// What it decided.
    pub decision: Decision,
    /// Its window, under the request's factor: see [`Algorithm::window`](weir_core::algorithm::Algorithm::window).
    pub window: Micros,
}

impl<'a> Answer<'a> {
    /// Fills in what was decided on these levels of a plan, its first ones.
    #[inline]
    pub(super) fn fill(&mut self, plan: &Plan<'a>, levels: &[Level<'a>], verdict: &Verdict) {
        self.fill_part(plan, levels, verdict, &verdict.decisions);
    }

    /// The same for any levels of it, with their decisions.
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
        self.repeated = verdict.repeat == Repeat::Again;
        self.set_overridden(plan.overridden);
    }

    /// Tells of an override; a ban is the answer.
    #[inline]
    pub(super) fn set_overridden(&mut self, overridden: Option<Overridden<'a>>) {
        self.overridden = overridden;
        if let Some(ban) = overridden.and_then(|overridden| overridden.ban) {
            self.summary = Summary { decision: refusal(&ban), binding: None };
        }
    }
}

/// What a ban decides.
pub(super) fn refusal(ban: &Ban<'_>) -> Decision {
    Decision::refuse(0, 0, ban.ends_after, ban.ends_after.unwrap_or_default())
}

impl Answer<'_> {
    /// The ban that has refused it.
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
            *retry = retry.saturating_add((*retry as f64 * plan.retry_jitter * level.spread()) as Micros);
        }
        Self { limit, depth, shadow: limit.shadow || plan.is_shadow, decision, window: level.params().window() }
    }
}
