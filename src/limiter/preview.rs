//! Previews of a decision: nothing is charged, stored or counted.

use std::{ptr, sync::LazyLock};

use smallvec::SmallVec;
use weir_core::{
    algorithm::{Params, fixed_window::FixedWindow},
    domain::{Charge, time::SECOND},
    plan::{Level, Limit, Origin, Plan},
};
use weir_policy::Policy;
use weir_store::{AnyStore, Store, Verdict, scan::Hold};

use super::{Answer, CheckError, Limiter, PolicyHandle, Request, decide::decide, request::plan_in};

/// A limit that refuses every request. In a plan it makes any store evaluate all other levels and charge none, in one
/// step.
static CLOSED: LazyLock<Limit> = LazyLock::new(|| {
    let nothing = Params::FixedWindow(FixedWindow::in_unit(0, SECOND, false));
    Limit::new(Origin::Request, Some("preview"), "", 0, false, nothing)
});

impl<S: Store> Limiter<S> {
    /// Returns the decisions of the limits of the domain's policy on a request now. A limit that would refuse it
    /// reports the time until it would not; the other limits report their current state. Limits that the request
    /// specifies are ignored.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn preview<'a>(
        &self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
    ) -> Result<Answer<'a>, CheckError> {
        let fill = |plan: &Plan<'a>, verdict: &Verdict, answer: &mut Answer<'a>| {
            let open = plan.levels().iter().take_while(|level| !ptr::eq(level.limit, &*CLOSED)).count();
            answer.fill(plan, &plan.levels()[..open], verdict);
        };
        decide(&self.store, plan(&handle.policy, request), fill).outcome(handle).await
    }
}

impl Limiter<AnyStore> {
    /// Returns the holds on each level of a preview.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn holds(&self, handle: &PolicyHandle, request: &Request<'_>) -> Result<Vec<Vec<Hold>>, CheckError> {
        Ok(self.store.holds(&plan(&handle.policy, request)?).await?)
    }
}

fn plan<'a>(policy: &'a Policy, request: &'a Request<'_>) -> Result<Plan<'a>, CheckError> {
    let domain = policy.domain(&request.domain);
    let domain = domain.ok_or_else(|| CheckError::UnknownDomain(request.domain.to_string()))?;
    let mut levels = request.levels(domain)?;
    let overridden = request.override_levels(policy, &mut levels, false);
    for level in &mut levels {
        if let Some(sparing) = level.params().sparing_denied() {
            level.scaled = Some(Box::new(sparing));
        }
    }
    close(&mut levels);
    let mut plan = plan_in(Some(domain), levels, Charge::AllOrNothing, request.max_wait);
    (plan.is_preview, plan.overridden) = (true, overridden);
    Ok(plan)
}

/// Adds a closed level at each anchor whose states may be decided separately.
fn close(levels: &mut SmallVec<[Level<'_>; 4]>) {
    for index in 0..levels.len() {
        let is_first = levels[..index].iter().all(|before| before.anchor_path() != levels[index].anchor_path());
        if is_first {
            levels.push(levels[index].beside(&CLOSED));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::Metrics;
    use weir_core::domain::ManualClock;
    use weir_store::{MemoryStore, memory::MemorySettings};

    const POLICY: &str = "
        schema:
          a:
            limits: [{ fixed_window: { count: 3, period: 60s, charge_denied: true } }]
            children:
              '*':
                limits: [{ gcra: { burst: 1, count: 1, period: 10s } }, { sliding_log: { count: 9, period: 9s, charge_denied: true } }]
                children: { b: { limits: [{ token_bucket: { capacity: 2, count: 1, period: 4s } }] } }
        charge: independent";

    fn limiter(clock: &Arc<ManualClock>) -> Limiter<MemoryStore<Arc<ManualClock>>> {
        let policy = weir_policy::parse(POLICY, &weir_policy::Rules::default()).unwrap();
        Limiter::new(MemoryStore::new(MemorySettings::default(), Arc::clone(clock)), policy, Metrics::new())
    }

    fn request(cost: i64) -> Request<'static> {
        let mut request = Request::new("", &["a", "x", "b"]).unwrap();
        request.set_terms(cost, None, 1.0).unwrap();
        request
    }

    #[tokio::test]
    async fn a_preview_matches_a_check_and_changes_nothing() {
        let clock = Arc::new(ManualClock::new(0));
        let (previewed, left_alone) = (limiter(&clock), limiter(&clock));
        let handles = (previewed.policy(), left_alone.policy());
        for turn in 0..40 {
            clock.set(turn * 1_700_000);
            for cost in [0, 1, 2, 5] {
                let request = request(cost);
                let preview = previewed.preview(&handles.0, &request).await.unwrap();
                let again = previewed.preview(&handles.0, &request).await.unwrap();
                assert_eq!(preview.summary, again.summary, "a preview is not seen by the next");
            }
            let request = request(1);
            let preview = previewed.preview(&handles.0, &request).await.unwrap();
            let (one, other) = (
                previewed.check(&handles.0, &request).await.unwrap(),
                left_alone.check(&handles.1, &request).await.unwrap(),
            );
            assert_eq!(one.summary, other.summary, "a preview is not seen by a check");
            for ((seen, checked), untouched) in preview.levels.iter().zip(&one.levels).zip(&other.levels) {
                assert_eq!(checked.decision, untouched.decision);
                assert_eq!(seen.decision.allowed, checked.decision.allowed, "turn {turn}: {}", seen.limit.name);
                if !seen.decision.allowed && !seen.limit.params.charges_denied() {
                    assert_eq!(seen.decision, checked.decision, "turn {turn}");
                }
            }
        }
    }

    #[test]
    fn a_closed_level_is_added_once_per_anchor() {
        let shared = "domain: d\ndescriptors: [{ key: f, value: 'a*', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 3 } }]";
        for (text, domain, key, places) in [(POLICY, "", &["a", "x", "b"][..], 2), (shared, "d", &["f", "ab"][..], 1)] {
            let policy = weir_policy::parse(text, &weir_policy::Rules::default()).unwrap();
            let request = Request::new(domain, key).unwrap();
            let mut levels = request.levels(policy.domain(domain).unwrap()).unwrap();
            let count = levels.len();
            close(&mut levels);
            assert_eq!(levels.len(), count + places);
            for level in &levels[..count] {
                assert!(levels[count..].iter().any(|closed| closed.anchor_path() == level.anchor_path()), "{key:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_preview_gives_the_retry_or_the_remaining_of_each_level() {
        let clock = Arc::new(ManualClock::new(0));
        let limiter = limiter(&clock);
        let handle = limiter.policy();
        for _ in 0..3 {
            limiter.check(&handle, &request(1)).await.unwrap();
        }
        let request = request(1);
        let preview = limiter.preview(&handle, &request).await.unwrap();
        let previewed: Vec<_> =
            preview.levels.iter().map(|level| (level.decision.remaining, level.decision.retry_after)).collect();
        let expected = [(0, Some(60 * SECOND)), (0, Some(10 * SECOND)), (6, None), (0, Some(4 * SECOND))];
        assert_eq!(previewed, expected);
        let outside = Request::new("", &["elsewhere"]).unwrap();
        assert!(limiter.preview(&handle, &outside).await.unwrap().levels.is_empty());
        let unknown = Request::new("nowhere", &["a"]).unwrap();
        assert!(matches!(limiter.preview(&handle, &unknown).await, Err(CheckError::UnknownDomain(_))));
    }
}
