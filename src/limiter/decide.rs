//! The path that all requests share: a plan, the store's verdict on it, and the answer filled in from both.

use scopeguard::ScopeGuard;
use weir_core::{domain::OnStoreFailure, hold::Idempotency, plan::Plan};
use weir_store::{Decide, Remote, Store, Verdict};

use super::{CheckError, Invalid, policy_handle::PolicyHandle};

/// A function that fills in an answer in place: moving an answer costs as much time as a part of the decision.
pub trait Fill<'a, T>: FnOnce(&Plan<'a>, &Verdict, &mut T) {}

impl<'a, T, F: FnOnce(&Plan<'a>, &Verdict, &mut T)> Fill<'a, T> for F {}

/// A request that is decided, or that waits for the store.
#[must_use = "a check that waits is not decided yet"]
#[expect(clippy::large_enum_variant, reason = "a box would be allocated for each check")]
pub enum PendingCheck<'l, 'a, T, F> {
    /// Decided, or rejected.
    Ready(Result<T, CheckError>),
    /// Not started: this store must be awaited to decide this plan.
    Waiting(&'l dyn Remote, Plan<'a>, F),
}

impl<'a, T: Default, F: Fill<'a, T>> PendingCheck<'_, 'a, T, F> {
    /// Returns the outcome, after the store's verdict if that must be awaited.
    ///
    /// # Errors
    /// [`CheckError`]. A refusal is an answer.
    pub async fn outcome(self, handle: &PolicyHandle) -> Result<T, CheckError> {
        match self {
            Self::Ready(outcome) => outcome,
            Self::Waiting(store, plan, fill) => {
                let verdict = verdict(store, &plan, handle).await?;
                try_build_answer(&plan, &verdict, fill)
            }
        }
    }
}

/// Awaits the store's verdict. If the store is down and `on_store_failure` is `error`, counts the request as degraded,
/// unless it is a dry run. Counts a request whose call ends before, with the same exception.
pub(super) async fn verdict(store: &dyn Remote, plan: &Plan<'_>, handle: &PolicyHandle) -> Result<Verdict, CheckError> {
    let abandoned = scopeguard::guard((), |()| {
        if !plan.dry_run {
            handle.counters.abandoned(plan.domain);
        }
    });
    let verdict = store.verdict(plan).await;
    ScopeGuard::into_inner(abandoned);
    verdict.map_err(|error| {
        if !error.is_overload() && plan.on_store_failure == OnStoreFailure::Error && !plan.dry_run {
            handle.counters.degraded(plan.domain, OnStoreFailure::Error);
        }
        error.into()
    })
}

/// Has the store decide a plan, and `fill` fill in the answer.
#[inline]
pub(super) fn decide<'l, 'a, T: Default, F: Fill<'a, T>>(
    store: &'l impl Store,
    plan: Result<Plan<'a>, CheckError>,
    fill: F,
) -> PendingCheck<'l, 'a, T, F> {
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => return PendingCheck::Ready(Err(error)),
    };
    let mut verdict = Verdict::default();
    match decide_in_store(store, &plan, &mut verdict) {
        Decide::Ready(verdict) => PendingCheck::Ready(try_build_answer(&plan, verdict, fill)),
        Decide::Waiting(store) => PendingCheck::Waiting(store, plan, fill),
    }
}

/// Has the store decide a plan. A plan without levels needs no store.
#[inline]
pub(super) fn decide_in_store<'s, 'v>(
    store: &'s impl Store,
    plan: &Plan<'_>,
    verdict: &'v mut Verdict,
) -> Decide<'s, 'v> {
    if plan.levels().is_empty() { Decide::Ready(verdict) } else { store.decide(plan, verdict) }
}

#[inline]
fn try_build_answer<'a, T: Default>(
    plan: &Plan<'a>,
    verdict: &Verdict,
    fill: impl Fill<'a, T>,
) -> Result<T, CheckError> {
    ensure_no_conflict(verdict)?;
    let mut answer = T::default();
    fill(plan, verdict, &mut answer);
    Ok(answer)
}

/// Rejects a request whose id was already used for a different request.
#[inline]
pub(super) fn ensure_no_conflict(verdict: &Verdict) -> Result<(), CheckError> {
    match verdict.idempotency {
        Idempotency::Conflict => {
            Err(Invalid::field_error("request_id", "another request has used this request_id").into())
        }
        _ => Ok(()),
    }
}
