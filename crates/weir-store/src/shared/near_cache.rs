//! Lookups in the near cache before requests to the shared store.

use smallvec::SmallVec;

use super::SharedStore;
use crate::{
    Failure, SystemClock, Verdict,
    near_cache::{Inserted, Lookup, NearCache},
};
use weir_core::{
    domain::{Charge, Decision},
    plan::Plan,
};

impl NearCache<SystemClock> {
    /// Returns the cached refusals of a plan: for all its levels together, or for each level that is charged
    /// independently. Shadow limits are charged if the others pass, so if there are any, the store decides all levels.
    fn cached_levels(&self, plan: &Plan<'_>, lookup: Lookup) -> SmallVec<[Option<Decision>; 4]> {
        if plan.reservation.is_some() || plan.request.is_some() {
            return SmallVec::new();
        }
        if plan.charge == Charge::Independent {
            if plan.levels().iter().any(|level| level.limit.shadow) {
                return SmallVec::new();
            }
            return plan.levels().iter().map(|level| self.refusal_of(level, lookup)).collect();
        }
        self.refusal(plan, lookup).into_iter().flatten().map(Some).collect()
    }

    /// Caches the store's decisions.
    fn learn(&self, plan: &Plan<'_>, lookup: Lookup, verdict: &Result<Verdict, Failure>) {
        let gives_back = plan.reservation.is_some_and(|reservation| !reservation.step.is_new());
        if gives_back || plan.levels().iter().any(|level| level.cost < 0) {
            // Even if the reply was lost, because returned units may let other checks pass.
            self.forget_all();
        } else if plan.request.is_none()
            && plan.reservation.is_none()
            && let Ok(Verdict { decisions, degraded: false, .. }) = verdict
            && self.insert(plan, lookup, decisions) == Inserted::Full
        {
            self.full.increment(1);
        }
    }
}

impl SharedStore {
    /// Decides a plan from the near cache, or else asks the store.
    pub(super) async fn decide_with_near_cache(
        &self,
        near: &NearCache<SystemClock>,
        plan: &Plan<'_>,
    ) -> Result<Verdict, Failure> {
        let lookup = near.lookup();
        let cached = near.cached_levels(plan, lookup);
        let hits = cached.iter().flatten().count();
        if hits == 0 {
            let verdict = self.ask(plan, None).await;
            near.learn(plan, lookup, &verdict);
            return verdict;
        }
        near.hits.increment(1);
        let asked = if hits == cached.len() {
            Verdict { at: self.local.now(), ..Verdict::default() }
        } else {
            let rest = plan.only(|index| cached[index].is_none());
            let verdict = self.ask(&rest, None).await;
            near.learn(&rest, lookup, &verdict);
            verdict?
        };
        let mut decided = asked.decisions.into_iter();
        let decisions = cached.iter().filter_map(|cached| cached.or_else(|| decided.next())).collect();
        let near = cached.iter().map(|cached| cached.is_some_and(|decision| !decision.allowed)).collect();
        Ok(Verdict { decisions, near, ..asked })
    }
}
