//! Client leases: clients hold units of the store, as replicas do, and decide checks locally.

use weir_core::{
    domain::Charge,
    hold::{Grant, Offer, Renewal},
};
use weir_store::{Store, Verdict};

use super::{
    Answer, CheckError, Limiter, PolicyHandle, Request,
    decide::{Fill, PendingCheck, decide},
    request::ensure_checkable,
};

/// The answer to a check of a client that holds or requests a lease.
#[derive(Debug, Default)]
pub struct Leased<'a> {
    /// The answer, as to a check. For a cost of 0: the current state of the limits.
    pub answer: Answer<'a>,
    /// The grant; `None` if the renewal was not served.
    pub grant: Option<Grant>,
}

impl<S: Store> Limiter<S> {
    /// Returns the terms on which the key of a request can be leased, or the reason why it cannot.
    ///
    /// # Errors
    /// [`CheckError`] for a request that has no plan.
    pub fn leasable(
        &self,
        handle: &PolicyHandle,
        request: &Request<'_>,
    ) -> Result<Result<Offer, &'static str>, CheckError> {
        let plan = request.plan(&handle.policy, handle.version, false)?;
        Ok(match Offer::of(&plan) {
            None if plan.overridden.is_some_and(|it| it.ban.is_some()) => Err("the key is banned"),
            None => Err("the policy does not lease all limits of the key: see weir limits explain"),
            Some(_) if plan.is_shadow => Err("the domain is in shadow mode"),
            Some(_) if !self.store.decides_in_one_step(&plan) => {
                Err("the key's limits are at several anchors of a Cluster")
            }
            Some(offer) => Ok(offer),
        })
    }

    /// Decides a request as a check, and serves a renewal under this offer in the same step. A request of cost 0 is not
    /// counted.
    pub fn lease<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a Request<'_>,
        renewal: Option<(&'a Renewal, Offer)>,
    ) -> PendingCheck<'l, 'a, Leased<'a>, impl Fill<'a, Leased<'a>>> {
        let plan = request.plan(&handle.policy, handle.version, false).and_then(|mut plan| {
            ensure_checkable(&plan)?;
            // An override may have started or ended since the offer.
            plan.renewal = renewal.filter(|(_, offer)| Offer::of(&plan) == Some(*offer)).map(|(renewal, _)| renewal);
            Ok(plan)
        });
        decide(&self.store, plan, move |plan, verdict: &Verdict, leased: &mut Leased<'a>| {
            leased.grant = verdict.grant.as_deref().copied();
            if request.cost == 0 {
                leased.answer.fill(plan, plan.levels(), verdict);
            } else {
                self.conclude(handle, request, plan, verdict, &mut leased.answer);
            }
        })
    }

    /// Settles a returned lease of a key that cannot be leased any more, on all limits that may have granted it, also
    /// those that an override removes or a ban hides. Returns `None` if there are none.
    ///
    /// # Errors
    /// [`CheckError`] if the request has no plan, or the store fails.
    pub async fn return_units(
        &self,
        handle: &PolicyHandle,
        request: &Request<'_>,
        renewal: &Renewal,
    ) -> Result<Option<Grant>, CheckError> {
        let mut plan = request.plan(&handle.policy, handle.version, true)?;
        plan.change_levels(|levels| levels.iter_mut().for_each(|level| level.cost = 0));
        plan.charge = Charge::AllOrNothing;
        let may_have_granted =
            |index: usize| plan.state_of(index) == index && plan.levels()[index].limit.params.holdable().is_ok();
        let plan = plan.only(may_have_granted);
        if plan.levels().is_empty() || !self.store.decides_in_one_step(&plan) {
            return Ok(None);
        }
        Ok(Some(self.store.renew(&plan, renewal).await?))
    }
}
