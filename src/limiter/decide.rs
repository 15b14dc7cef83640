//! The one path of every question: a plan, the store's verdict on it, and the answer that is filled in from both.

use weir_core::{domain::OnStoreFailure, hold::Repeat, plan::Plan};
use weir_store::{Decide, Remote, Store, StoreError, Verdict};

use super::{
    policy_handle::PolicyHandle,
    request::{CheckError, Invalid},
};

/// What fills in an answer, where it is: moving one takes as long as a part of the decision.
pub trait Fill<'a, T>: FnOnce(&Plan<'a>, &Verdict, &mut T) {}

impl<'a, T, F: FnOnce(&Plan<'a>, &Verdict, &mut T)> Fill<'a, T> for F {}

/// A question on its way to its answer.
#[must_use = "a question that waits is not decided yet"]
#[expect(clippy::large_enum_variant, reason = "a box would be allocated for each question")]
pub enum Checking<'l, 'a, T, F> {
    /// Decided, or refused as invalid.
    Ready(Result<T, CheckError>),
    /// Not begun: this store decides this plan.
    Waiting(&'l dyn Remote, Plan<'a>, F),
}

impl<'a, T: Default, F: Fill<'a, T>> Checking<'_, 'a, T, F> {
    /// The outcome, once the store has decided where it is waited for.
    ///
    /// # Errors
    /// [`CheckError`]. A refusal is an answer.
    pub async fn outcome(self, handle: &PolicyHandle) -> Result<T, CheckError> {
        match self {
            Self::Ready(outcome) => outcome,
            Self::Waiting(store, plan, fill) => {
                let verdict = verdict(store, &plan, handle).await?;
                checked(&plan, &verdict, fill)
            }
        }
    }
}

/// The verdict of a store that is waited for. Counts what is answered by an error because the store is down.
pub(super) async fn verdict(store: &dyn Remote, plan: &Plan<'_>, handle: &PolicyHandle) -> Result<Verdict, CheckError> {
    store.verdict(plan).await.map_err(|error| {
        let is_down = matches!(error, StoreError::Unavailable(_));
        if is_down && plan.on_store_failure == OnStoreFailure::Error && !plan.dry_run {
            handle.meters.degraded(plan.domain, OnStoreFailure::Error);
        }
        error.into()
    })
}

/// Has a store decide a plan, and `fill` the answer.
#[inline]
pub(super) fn decide<'l, 'a, T: Default, F: Fill<'a, T>>(
    store: &'l impl Store,
    plan: Result<Plan<'a>, CheckError>,
    fill: F,
) -> Checking<'l, 'a, T, F> {
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => return Checking::Ready(Err(error)),
    };
    let mut verdict = Verdict::default();
    match ask(store, &plan, &mut verdict) {
        Decide::Ready(verdict) => Checking::Ready(checked(&plan, verdict, fill)),
        Decide::Waiting(store) => Checking::Waiting(store, plan, fill),
    }
}

/// Has a store decide a plan. One without levels needs no store.
#[inline]
pub(super) fn ask<'s, 'v>(store: &'s impl Store, plan: &Plan<'_>, verdict: &'v mut Verdict) -> Decide<'s, 'v> {
    if plan.levels().is_empty() { Decide::Ready(verdict) } else { store.decide(plan, verdict) }
}

#[inline]
fn checked<'a, T: Default>(plan: &Plan<'a>, verdict: &Verdict, fill: impl Fill<'a, T>) -> Result<T, CheckError> {
    ensure_no_conflict(verdict)?;
    Ok(filled(plan, verdict, fill))
}

/// Refuses a request whose id another one has had.
#[inline]
pub(super) fn ensure_no_conflict(verdict: &Verdict) -> Result<(), CheckError> {
    match verdict.repeat {
        Repeat::Conflict => Err(Invalid::field_error("request_id", "another request has had this request_id").into()),
        _ => Ok(()),
    }
}

#[inline]
pub(super) fn filled<'a, T: Default>(plan: &Plan<'a>, verdict: &Verdict, fill: impl Fill<'a, T>) -> T {
    let mut answer = T::default();
    fill(plan, verdict, &mut answer);
    answer
}
