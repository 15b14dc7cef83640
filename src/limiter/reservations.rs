//! Reservations: a check whose cost is held until the caller knows what it really was, and then settled.

use weir_core::{
    domain::{Micros, time::SECOND},
    hold::{OnExpiry, Outcome, Reservation, Step},
    plan::Plan,
};
use weir_store::{Store, Verdict};

use super::{
    Answer, CheckError, Invalid, Limiter, PolicyHandle, Request,
    decide::{Checking, Fill, decide},
};

/// The answer to a request that reserves.
#[derive(Debug, Default)]
pub struct Reserved<'a> {
    /// As that of a check.
    pub answer: Answer<'a>,
    /// What the store holds; `None`: it was not asked, or did not answer.
    pub outcome: Option<Outcome>,
    /// How long it was to last, at most.
    pub ttl: Micros,
}

/// What a client asks of a reservation that it has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It cost so much.
    Commit(u64),
    /// It cost nothing.
    Cancel,
    /// Hold it for so long from now on, at most; as [`Plan::reservation_ttl`] says.
    Extend(Option<Micros>),
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
    /// Decides a request as a check, and holds its cost under this name where it passes: for `ttl` at most, and as
    /// [`Plan::reservation_ttl`] says.
    pub fn reserve<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        name: &'a [u8],
        ttl: Option<Micros>,
        on_expiry: OnExpiry,
    ) -> Checking<'l, 'a, Reserved<'a>, impl Fill<'a, Reserved<'a>>> {
        let mut lasts = Micros::default();
        let plan = request.plan(&handle.policy, handle.version, false).and_then(|mut plan| {
            plan.reservable().map_err(|(level, reason)| {
                let limit = level.map(|level| format!("the limit `{}`", plan.levels()[level].limit.name));
                CheckError::NotReservable(limit.unwrap_or_else(|| "the key".to_owned()), reason)
            })?;
            lasts = lasting(&plan, ttl)?;
            plan.reservation = Some(Reservation { name, step: Step::Reserve { ttl: lasts, on_expiry } });
            Ok(plan)
        });
        decide(&self.store, plan, move |plan, verdict, reserved: &mut Reserved<'a>| {
            self.conclude(handle, request, plan, verdict, &mut reserved.answer);
            (reserved.outcome, reserved.ttl) = (verdict.reservation.as_deref().copied(), lasts);
        })
    }

    /// Settles or extends what a request has reserved under this name. The policy may have changed since: limits that it does not have any more
    /// are left out.
    pub fn settle<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        name: &'a [u8],
        settle: Settle,
    ) -> Checking<'l, 'a, Settled, impl Fill<'a, Settled>> {
        let plan = request.plan(&handle.policy, handle.version, true).and_then(|mut plan| {
            let step = match settle {
                Settle::Commit(actual) => Step::Commit { actual },
                Settle::Cancel => Step::Cancel,
                Settle::Extend(ttl) => Step::Extend { ttl: lasting(&plan, ttl)? },
            };
            plan.reservation = Some(Reservation { name, step });
            Ok(plan)
        });
        decide(&self.store, plan, |plan: &Plan<'a>, verdict: &Verdict, settled: &mut Settled| {
            let outcome =
                if plan.levels().is_empty() { Some(Outcome::Unknown) } else { verdict.reservation.as_deref().copied() };
            *settled = Settled { outcome, domain: plan.domain };
        })
    }
}

impl Request<'_> {
    /// How long a reservation of it lasts at most, by the policy and what is requested.
    ///
    /// # Errors
    /// [`CheckError`] where neither says.
    pub fn reservation_ttl(&self, handle: &PolicyHandle, requested: Option<Micros>) -> Result<Micros, CheckError> {
        lasting(&self.plan(&handle.policy, handle.version, false)?, requested)
    }
}

fn lasting(plan: &Plan<'_>, requested: Option<Micros>) -> Result<Micros, CheckError> {
    // Where nothing limits the key any more, nothing is held.
    let unlimited = plan.levels().is_empty().then_some(60 * SECOND);
    let needed = || Invalid::field_error("ttl", "a reservation needs a ttl").into();
    plan.reservation_ttl(requested).or(unlimited).ok_or_else(needed)
}
