//! Asks the near cache before the shared store.

use metrics::Counter;
use smallvec::SmallVec;

use super::SharedStore;
use crate::{
    StoreError, SystemClock, Verdict,
    metrics::{NEAR_FULL, NEAR_HITS},
    near::{Learned, Lookup, NearCache, NearCacheSettings},
};
use weir_core::{
    domain::{Charge, Decision},
    plan::Plan,
};
use weir_telemetry::Registry;

/// The near cache with what it counts.
pub(super) struct Near {
    cache: NearCache<SystemClock>,
    hits: Counter,
    full: Counter,
}

impl Near {
    pub(super) fn new(settings: &NearCacheSettings, clock: SystemClock, registry: &Registry) -> Self {
        let (hits, full) = (registry.counter(NEAR_HITS, &[]), registry.counter(NEAR_FULL, &[]));
        Self { cache: NearCache::new(settings, clock), hits, full }
    }

    /// Forgets every refusal: something was given back.
    pub(super) fn forget_all(&self) {
        self.cache.forget_all();
    }

    /// The refusals that are known of a plan: of all its levels together, or of those that are charged for themselves. Shadows are
    /// charged if the others pass, so where there are any the store decides all of them.
    fn known(&self, plan: &Plan<'_>, lookup: Lookup) -> SmallVec<[Option<Decision>; 4]> {
        if plan.reservation.is_some() || plan.request.is_some() {
            return SmallVec::new();
        }
        if plan.charge == Charge::Independent {
            if plan.levels().iter().any(|level| level.limit.shadow) {
                return SmallVec::new();
            }
            return plan.levels().iter().map(|level| self.cache.refusal_of(level, lookup)).collect();
        }
        self.cache.refusal(plan, lookup).into_iter().flatten().map(Some).collect()
    }

    /// Remembers what the store has decided.
    fn learn(&self, plan: &Plan<'_>, lookup: Lookup, verdict: &Result<Verdict, StoreError>) {
        let gives_back = plan.reservation.is_some_and(|reservation| !reservation.step.is_new());
        if gives_back || plan.levels().iter().any(|level| level.cost < 0) {
            // Even where the answer is lost: what was given back may let others pass.
            self.forget_all();
        } else if plan.request.is_none()
            && plan.reservation.is_none()
            && let Ok(Verdict { decisions, degraded: false, .. }) = verdict
            && self.cache.learn(plan, lookup, decisions) == Learned::Full
        {
            self.full.increment(1);
        }
    }
}

impl SharedStore {
    /// Decides a plan by the near cache, or else by the store.
    pub(super) async fn ask_unless_near(&self, near: &Near, plan: &Plan<'_>) -> Result<Verdict, StoreError> {
        let lookup = near.cache.lookup();
        let known = near.known(plan, lookup);
        let hits = known.iter().flatten().count();
        if hits == 0 {
            let verdict = self.ask(plan, None).await.0;
            near.learn(plan, lookup, &verdict);
            return verdict;
        }
        near.hits.increment(1);
        let asked = if hits == known.len() {
            Verdict { at: self.local.now(), ..Verdict::default() }
        } else {
            let rest = plan.only(|index| known[index].is_none());
            let verdict = self.ask(&rest, None).await.0;
            near.learn(&rest, lookup, &verdict);
            verdict?
        };
        let mut decided = asked.decisions.into_iter();
        let decisions = known.iter().filter_map(|known| known.or_else(|| decided.next())).collect();
        let near = known.iter().map(|known| known.is_some_and(|decision| !decision.allowed)).collect();
        Ok(Verdict { decisions, near, ..asked })
    }
}
