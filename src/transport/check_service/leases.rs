//! Client leases: the Lease call.

use std::ops::RangeInclusive;

use weir_core::{
    domain::{request::MAX_COST, time::SECOND},
    hold::{Grant, HoldId, Offer, Renewal},
};
use weir_store::Store;

use super::{
    CheckService,
    outcomes::{by_itself, count},
};
use crate::{
    limiter::{Answer, Invalid, Leased, Request},
    proto::LeaseRequest,
    telemetry::LeaseCall,
    transport::{
        audit::Actor,
        digest::{delimited, sha256},
        message::CheckMessage,
        status::Rejected,
    },
};

/// Length of a holder's id, in bytes.
const HOLDER_BYTES: usize = 16;
/// Largest integer that the store represents exactly (as a double).
const MAX_TOTAL: u64 = 1 << 53;

/// The answer to a `LeaseRequest`.
#[derive(Debug)]
pub struct LeaseAnswer<'c, 'a> {
    /// The answer to the check; `None` if there was nothing to decide and no renewal was served.
    pub decision: Option<&'c Answer<'a>>,
    /// The grant; `None` if nothing was settled.
    pub grant: Option<Grant>,
    /// The terms of the lease, or the reason why the key cannot be leased.
    pub leasable: Result<Offer, &'static str>,
}

impl<S: Store> CheckService<S> {
    /// Decides a check and serves the renewal of a client's lease in the same step. `encode` makes the answer.
    ///
    /// # Errors
    /// [`Rejected`] if the request is invalid or the store fails.
    pub async fn lease<T>(
        &self,
        message: Result<(CheckMessage<'_>, LeaseRequest), Invalid>,
        actor: &Actor,
        encode: impl FnOnce(LeaseAnswer<'_, '_>) -> T,
    ) -> Result<T, Rejected> {
        let handle = self.limiter.policy();
        let read = message.map_err(Rejected::from).and_then(|(check, message)| {
            let (request, id) = self.read_lease(&check, &message, actor)?;
            Ok((request, id, message))
        });
        let (request, id, LeaseRequest { generation, sequence, spent, kept, want, .. }) =
            read.inspect_err(|_| self.failed(&handle, None, actor.transport))?;
        let leasable = self.limiter.leasable(&handle, &request).map_err(|error| {
            count(&handle, actor.transport, &request, None, self.is_observed);
            Rejected::from(error).in_field("check")
        })?;
        let offer = leasable.ok().filter(|offer| offer.serves(generation, kept, want));
        let renewal = offer.map(|offer| (Renewal { id, sequence, spent, kept, want, ttl: offer.terms.ttl }, offer));
        let served = renewal.as_ref().map(|(renewal, offer)| (renewal, *offer));
        let domain = handle.policy.domain(&request.domain).map(|domain| domain.index);
        let unserved = if leasable.is_err() { LeaseCall::NotLeasable } else { LeaseCall::Changed };
        // A client that knows no generation has nothing to return.
        let returned = if leasable.is_err() && generation > 0 && (kept, want) == (0, 0) {
            let renewal = Renewal { id, sequence, spent, kept, want, ttl: SECOND };
            match self.limiter.return_units(&handle, &request, &renewal).await {
                Ok(grant) => grant,
                Err(error) if request.cost == 0 => {
                    handle.counters.lease(domain, LeaseCall::Lost, None);
                    return Err(Rejected::from(error).in_field("check"));
                }
                // The check of the same request is decided nevertheless.
                Err(_) => None,
            }
        } else {
            None
        };
        if request.cost == 0 && renewal.is_none() && returned.is_none() {
            handle.counters.lease(domain, unserved, None);
            return Ok(encode(LeaseAnswer { decision: None, grant: None, leasable }));
        }
        let leased = self.outcome(&handle, self.limiter.lease(&handle, &request, served)).await;
        if request.cost > 0 {
            let answer = by_itself(leased.as_ref().ok().map(|leased| &leased.answer));
            count(&handle, actor.transport, &request, answer, self.is_observed);
        }
        let grant = leased.as_ref().ok().and_then(|leased| leased.grant).or(returned);
        let call = match (renewal, grant) {
            (_, Some(_)) => LeaseCall::Served,
            (Some(_), None) => LeaseCall::Lost,
            (None, None) => unserved,
        };
        handle.counters.lease(domain, call, grant.as_ref());
        let Leased { answer, .. } = leased.map_err(|rejected| rejected.in_field("check"))?;
        Ok(encode(LeaseAnswer { decision: Some(&answer), grant, leasable }))
    }

    /// Decodes the check of a renewal, and the hold of its lease.
    fn read_lease<'m>(
        &self,
        check: &CheckMessage<'m>,
        message: &LeaseRequest,
        actor: &Actor,
    ) -> Result<(Request<'m>, HoldId), Rejected> {
        let LeaseRequest { holder, lease, sequence, spent, kept, want, .. } = message;
        if holder.len() != HOLDER_BYTES {
            let message = format!("a holder must be {HOLDER_BYTES} random bytes, not {}", holder.len());
            return Err(Invalid::field_error("holder", message).into());
        }
        ensure_in_range("sequence", *sequence, 1..=MAX_TOTAL)?;
        ensure_in_range("spent", *spent, 0..=MAX_TOTAL)?;
        ensure_in_range("kept", *kept, 0..=MAX_COST.unsigned_abs())?;
        ensure_in_range("want", *want, 0..=MAX_COST.unsigned_abs())?;
        let alone = [
            ("check.limit_spec", check.limit_spec.is_some()),
            ("check.factor", check.factor.is_some_and(|factor| factor != 1.0)),
            ("check.request_id", !check.request_id.is_empty()),
            ("check.dry_run", check.dry_run),
            ("check.cost", check.cost.is_some_and(|cost| cost < 0)),
        ];
        if let Some((field, _)) = alone.into_iter().find(|(_, is_there)| *is_there) {
            return Err(Invalid::field_error(field, "not with a lease: use Check").into());
        }
        let request = self.request(check).map_err(|invalid| Rejected::from(invalid).in_field("check"))?;
        let id = hold_id(holder, actor.client.as_deref(), *lease, &request);
        Ok((request, id))
    }
}

fn ensure_in_range(field: &str, number: u64, range: RangeInclusive<u64>) -> Result<(), Invalid> {
    if range.contains(&number) {
        return Ok(());
    }
    let message = format!("{field} must be {} to {}, not {number}", range.start(), range.end());
    Err(Invalid::field_error(field, message))
}

/// Returns the hold of a lease. It is unique to the client and the key, so keys that share a level have separate holds.
fn hold_id(holder: &[u8], client: Option<&str>, lease: u64, request: &Request<'_>) -> HoldId {
    let word = |parts: &[&[u8]]| u64::from_le_bytes(sha256(parts.iter().map(|part| delimited(part))));
    let (client, key) = (client.unwrap_or_default().as_bytes(), request.key.prefix(request.key.depth()));
    HoldId { owner: word(&[holder, client]), number: word(&[holder, client, &lease.to_le_bytes(), key]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients renew a lease on any replica, also of another version.
    #[test]
    fn ids_of_leases_stay_the_same_across_versions() {
        let request = Request::new("shop", &["user", "alex"]).unwrap();
        let id = |client| hold_id(&[7; HOLDER_BYTES], client, 3, &request);
        assert_eq!(id(Some("app")), HoldId { owner: 4_146_693_318_361_502_876, number: 398_357_516_130_325_120 });
        assert_eq!(id(None), HoldId { owner: 15_785_721_827_942_111_877, number: 12_118_645_672_341_477_670 });
    }
}
