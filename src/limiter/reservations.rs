//! Reservations: a check whose cost is held until the client knows the actual cost and settles it.

use weir_core::{
    domain::{Micros, time::SECOND},
    hold::{OnExpiry, Outcome, Reservation, ReservationStep},
    plan::Plan,
};
use weir_store::{Store, Verdict};

use super::{
    Answer, CheckError, Invalid, Limiter, PolicyHandle, Request,
    decide::{Fill, PendingCheck, decide},
};

/// The TTL of a reservation without a limit that sets one.
const TTL_UNLIMITED: Micros = 60 * SECOND;

/// The answer to a request to reserve.
#[derive(Debug, Default)]
pub struct Reserved<'a> {
    /// The answer, as to a check.
    pub answer: Answer<'a>,
    /// The reservation in the store; `None`: the store was not asked, or did not answer.
    pub outcome: Option<Outcome>,
    /// The TTL that was requested of the store.
    pub ttl: Micros,
}

/// A client's request about its reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// Settles it with the actual cost, in units; by default the reserved units.
    Commit(Option<u64>),
    /// Settles it with an actual cost of 0.
    Cancel,
    /// Holds it for at most this long from now on; see [`Plan::reservation_ttl`].
    Extend(Option<Micros>),
}

/// The outcome of a [`Settle`] request.
#[derive(Debug, Default)]
pub struct SettleOutcome {
    /// The reservation in the store; `None`: the store did not answer.
    pub outcome: Option<Outcome>,
    /// The index of the domain in its policy.
    pub domain: Option<u32>,
}

impl<S: Store> Limiter<S> {
    /// Decides a request as a check and, if it passes, holds its cost under `name`, for at most `ttl`; see
    /// [`Plan::reservation_ttl`].
    pub fn reserve<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        name: &'a [u8],
        ttl: Option<Micros>,
        on_expiry: OnExpiry,
    ) -> PendingCheck<'l, 'a, Reserved<'a>, impl Fill<'a, Reserved<'a>>> {
        let mut lasts = Micros::default();
        let plan = request.plan(&handle.policy, handle.version, false).and_then(|mut plan| {
            plan.reservable().map_err(|(level, reason)| {
                let limit = level.map(|level| format!("the limit `{}`", plan.levels()[level].limit.name));
                CheckError::NotReservable(limit.unwrap_or_else(|| "the key".to_owned()), reason)
            })?;
            lasts = lasting(&plan, ttl)?;
            plan.reservation = Some(Reservation { name, step: ReservationStep::Reserve { ttl: lasts, on_expiry } });
            Ok(plan)
        });
        decide(&self.store, plan, move |plan, verdict, reserved: &mut Reserved<'a>| {
            self.conclude(handle, request, plan, verdict, &mut reserved.answer);
            (reserved.outcome, reserved.ttl) = (verdict.reservation.as_deref().copied(), lasts);
        })
    }

    /// Settles or extends the reservation of this name. If the policy has changed since, limits that it no longer has
    /// are left out.
    pub fn settle<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        name: &'a [u8],
        settle: Settle,
    ) -> PendingCheck<'l, 'a, SettleOutcome, impl Fill<'a, SettleOutcome>> {
        let plan = request.plan(&handle.policy, handle.version, true).map(|mut plan| {
            let step = match settle {
                Settle::Commit(actual) => {
                    ReservationStep::Commit { actual: actual.unwrap_or(request.cost.unsigned_abs()) }
                }
                Settle::Cancel => ReservationStep::Cancel,
                // Without a TTL it was the one of a concurrency limit, which the policy may have removed since.
                Settle::Extend(ttl) => {
                    ReservationStep::Extend { ttl: plan.reservation_ttl(ttl).unwrap_or(TTL_UNLIMITED) }
                }
            };
            plan.reservation = Some(Reservation { name, step });
            plan
        });
        decide(&self.store, plan, |plan: &Plan<'a>, verdict: &Verdict, settled: &mut SettleOutcome| {
            let outcome =
                if plan.levels().is_empty() { Some(Outcome::Unknown) } else { verdict.reservation.as_deref().copied() };
            *settled = SettleOutcome { outcome, domain: plan.domain };
        })
    }
}

impl Request<'_> {
    /// Returns the maximum TTL of a reservation of this request, from the policy and the requested TTL.
    ///
    /// # Errors
    /// [`CheckError`] if neither specifies one.
    pub fn reservation_ttl(&self, handle: &PolicyHandle, requested: Option<Micros>) -> Result<Micros, CheckError> {
        lasting(&self.plan(&handle.policy, handle.version, false)?, requested)
    }
}

fn lasting(plan: &Plan<'_>, requested: Option<Micros>) -> Result<Micros, CheckError> {
    let unlimited = plan.levels().is_empty().then_some(TTL_UNLIMITED);
    let needed = || Invalid::field_error("ttl", "a reservation needs a ttl").into();
    plan.reservation_ttl(requested).or(unlimited).ok_or_else(needed)
}
