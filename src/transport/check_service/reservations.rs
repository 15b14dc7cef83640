//! Reservations: the calls Reserve, Commit, Cancel and Extend.

use weir_core::{
    domain::Micros,
    hold::{OnExpiry, Outcome as ReservationOutcome},
};
use weir_store::Store;

use super::{
    CheckService,
    outcomes::{by_itself, count},
};
use crate::{
    limiter::{Answer, CheckError, Invalid, PolicyHandle, Request, Reserved, Settle, SettleOutcome},
    proto::ReserveRequest,
    telemetry::{
        ReservationCall,
        ReservationUnits::{Overage, Refunded, Reserved as ReservedUnits},
    },
    transport::{
        audit::Actor,
        decode,
        hold_token::{HoldToken, HoldTokenKind, malformed},
        message::CheckMessage,
        status::Rejected,
    },
};

/// The outcome of a [`Settle`]. All units are 0 if nothing is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// The actual cost, in units.
    pub charged: u64,
    /// Refunded reserved units.
    pub refunded: u64,
    /// Units charged beyond the reserved ones.
    pub overage: u64,
    /// After Extend, the time until the hold expires. If nothing is held, the time for which it would be: the client
    /// need not know that there is nothing to extend.
    pub expires_after: Micros,
    /// Whether nothing is held because the shared store did not answer.
    pub degraded: bool,
}

impl<S: Store> CheckService<S> {
    /// Decides a check, counts its outcome, and holds its cost if it is allowed. `encode` makes the answer from the
    /// decision and, if the check is allowed, from the hold token and the time until the hold expires.
    ///
    /// # Errors
    /// [`Rejected`] if the request is invalid or the store fails.
    pub async fn reserve<T>(
        &self,
        message: Result<(CheckMessage<'_>, ReserveRequest), Invalid>,
        actor: &Actor,
        encode: impl FnOnce(&Answer<'_>, Option<(String, Micros)>) -> T,
    ) -> Result<T, Rejected> {
        let handle = self.limiter.policy();
        let read = message.map_err(Rejected::from).and_then(|(check, message)| self.read(&check, &message));
        let (request, mut token, ttl, on_expiry) = read.inspect_err(|_| self.failed(&handle, None, actor.transport))?;
        let name = token.name(actor.client.as_deref());
        let pending = self.limiter.reserve(&handle, &request, &name, ttl, on_expiry);
        let reserved = self.outcome(&handle, pending).await;
        let answer = by_itself(reserved.as_ref().ok().map(|reserved| &reserved.answer));
        count(&handle, actor.transport, &request, answer, self.is_observed);
        let Reserved { answer, outcome, ttl } = reserved.map_err(|rejected| match &*rejected.field {
            "ttl" => rejected,
            _ => rejected.in_field("check"),
        })?;
        if !answer.summary.decision.allowed {
            handle.counters.reservation(answer.domain, ReservationCall::Refused, &[]);
            return Ok(encode(&answer, None));
        }
        let (kind, expires_after, units) = match outcome {
            Some(ReservationOutcome::Reserved { expires_after }) => {
                let units = if answer.repeated { 0 } else { request.cost.unsigned_abs() };
                (HoldTokenKind::Units, expires_after, units)
            }
            _ if answer.degraded => (HoldTokenKind::Degraded, ttl, 0),
            _ => (HoldTokenKind::Nothing, ttl, 0),
        };
        token.kind = kind;
        handle.counters.reservation(answer.domain, ReservationCall::Reserved, &[(ReservedUnits, units)]);
        Ok(encode(&answer, Some((token.encode(), expires_after))))
    }

    /// Returns the request to decide, its hold token, the requested TTL, and the action on expiry.
    fn read<'m>(
        &self,
        check: &CheckMessage<'m>,
        message: &ReserveRequest,
    ) -> Result<(Request<'m>, HoldToken, Option<Micros>, OnExpiry), Rejected> {
        let (ttl, on_expiry) = (decode::ttl(message.ttl.as_ref())?, decode::on_expiry(message.on_expiry)?);
        let token = HoldToken::new(check);
        let request = self.request(check).map_err(|invalid| Rejected::from(invalid).in_field("check"))?;
        if request.cost < 1 {
            let message = format!("a reservation must be of 1 to 2^32 units, not {}", request.cost);
            return Err(Invalid::field_error("check.cost", message).into());
        }
        if request.dry_run {
            return Err(Invalid::field_error("check.dry_run", "a reservation cannot be a dry run: use Check").into());
        }
        Ok((request, token, ttl, on_expiry))
    }

    /// Settles or extends a reservation, and counts the outcome.
    ///
    /// # Errors
    /// [`Rejected`] if this client has no such reservation, and if the store fails.
    pub async fn settle(&self, hold: &str, settle: Settle, actor: &Actor) -> Result<Settlement, Rejected> {
        let handle = self.limiter.policy();
        let token = HoldToken::decode(hold)?;
        let request = self.request(&token.check()?).map_err(|_| malformed())?;
        self.report_domain(&handle, &request);
        let call = match settle {
            Settle::Commit(_) => ReservationCall::Committed,
            Settle::Cancel => ReservationCall::Cancelled,
            Settle::Extend(_) => ReservationCall::Extended,
        };
        if token.kind != HoldTokenKind::Units {
            let domain = handle.policy.domain(&request.domain).map(|domain| domain.index);
            let expires_after = match settle {
                Settle::Extend(ttl) => request.reservation_ttl(&handle, ttl)?,
                Settle::Commit(_) | Settle::Cancel => 0,
            };
            handle.counters.reservation(domain, call, &[]);
            let degraded = token.kind == HoldTokenKind::Degraded;
            return Ok(Settlement { expires_after, degraded, ..Settlement::default() });
        }
        let name = token.name(actor.client.as_deref());
        let pending = self.limiter.settle(&handle, &request, &name, settle);
        let settled = self.outcome(&handle, pending).await?;
        concluded(&handle, call, request.cost.unsigned_abs(), &settled)
    }
}

/// Converts the store's outcome into the client's answer, and counts it.
fn concluded(
    handle: &PolicyHandle,
    call: ReservationCall,
    reserved: u64,
    settled: &SettleOutcome,
) -> Result<Settlement, Rejected> {
    let count = |call, units: &[_]| handle.counters.reservation(settled.domain, call, units);
    match settled.outcome {
        Some(ReservationOutcome::Settled { actual, overage, before }) if call != ReservationCall::Extended => {
            let refunded = reserved.saturating_sub(actual);
            let moved = [(Refunded, refunded), (Overage, overage)];
            count(call, if before { &[] } else { &moved });
            Ok(Settlement { charged: actual, refunded, overage, ..Settlement::default() })
        }
        Some(ReservationOutcome::Extended { expires_after }) => {
            count(call, &[]);
            Ok(Settlement { expires_after, ..Settlement::default() })
        }
        None => Err(CheckError::NotSettled.into()),
        _ => {
            count(ReservationCall::Unknown, &[]);
            Err(CheckError::UnknownReservation.into())
        }
    }
}
