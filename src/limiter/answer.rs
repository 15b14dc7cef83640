//! The answer to a request.

use smallvec::SmallVec;
use weir_core::{
    domain::{Decision, Micros, Summary, aggregate},
    hold::Repeat,
    plan::{Level, Limit, Plan},
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
    /// What it decided.
    pub decision: Decision,
    /// Its window, under the request's factor: see [`Algorithm::window`](weir_core::algorithm::Algorithm::window).
    pub window: Micros,
}

impl<'a> Answer<'a> {
    /// Fills in what was decided on these levels of a plan.
    #[inline]
    pub(super) fn fill(&mut self, plan: &Plan<'a>, levels: &[Level<'a>], verdict: &Verdict) {
        let decided = levels.iter().zip(&verdict.decisions);
        self.levels.extend(decided.map(|(level, decision)| LevelAnswer::new(level, decision)));
        self.summary = aggregate(self.levels.iter().map(|level| (&level.decision, level.limit.shadow)));
        (self.domain, self.degraded, self.leased) = (plan.domain, verdict.degraded, verdict.leased);
        self.repeated = verdict.repeat == Repeat::Again;
    }
}

impl<'a> LevelAnswer<'a> {
    #[inline]
    pub(super) fn new(level: &Level<'a>, decision: &Decision) -> Self {
        Self { limit: level.limit, depth: level.depth, decision: *decision, window: level.params().window() }
    }
}
