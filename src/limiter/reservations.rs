//! Reservations: a check whose cost is held until the caller knows what it really was, and then settled.

use weir_core::{
    hold::{Outcome, Reservation},
    plan::Plan,
};
use weir_store::{Store, Verdict};

use super::{
    Answer, CheckError, Limiter, PolicyHandle, Request,
    decide::{Checking, Fill, decide},
};

/// The answer to a request that reserves.
#[derive(Debug, Default)]
pub struct Reserved<'a> {
    /// As that of a check.
    pub answer: Answer<'a>,
    /// What the store holds; `None`: it was not asked, or did not answer.
    pub outcome: Option<Outcome>,
}

/// What became of a reservation.
#[derive(Debug, Default)]
pub struct Settled {
    /// As the store tells it; `None`: it did not answer.
    pub outcome: Option<Outcome>,
    /// The number of the domain in its policy.
    pub domain: Option<u32>,
}

impl<S: Store> Limiter<S> {
    /// Decides a request as a check, and holds its cost where it passes.
    pub fn reserve<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        reservation: &'a Reservation<'a>,
    ) -> Checking<'l, 'a, Reserved<'a>, impl Fill<'a, Reserved<'a>>> {
        let plan = request.plan(&handle.policy, handle.version).and_then(|mut plan| {
            plan.reservable().map_err(|(level, reason)| {
                let limit = level.map(|level| format!("the limit `{}`", plan.levels()[level].limit.name));
                CheckError::NotReservable(limit.unwrap_or_else(|| "the key".to_owned()), reason)
            })?;
            plan.reservation = Some(reservation);
            Ok(plan)
        });
        decide(&self.store, plan, move |plan, verdict, reserved: &mut Reserved<'a>| {
            self.conclude(handle, request, plan, verdict, &mut reserved.answer);
            reserved.outcome = verdict.reservation.as_deref().copied();
        })
    }

    /// Settles or extends what a request has reserved. The policy may have changed since: limits that it does not have any more
    /// are left out.
    pub fn settle<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        reservation: &'a Reservation<'a>,
    ) -> Checking<'l, 'a, Settled, impl Fill<'a, Settled>> {
        let plan = request.plan(&handle.policy, handle.version).map(|mut plan| {
            plan.reservation = Some(reservation);
            plan
        });
        decide(&self.store, plan, |plan: &Plan<'a>, verdict: &Verdict, settled: &mut Settled| {
            let outcome =
                if plan.levels().is_empty() { Some(Outcome::Unknown) } else { verdict.reservation.as_deref().copied() };
            *settled = Settled { outcome, domain: plan.domain };
        })
    }
}
