//! What every surface does with a reservation.

use weir_core::{
    domain::{Micros, key::domain_label},
    hold::{OnExpiry, Outcome as ReservationOutcome},
};
use weir_store::Store;
use weir_telemetry::request::{self, OTHER};

use super::{CheckService, by_itself, count, count_failed};
use crate::{
    limiter::{Answer, CheckError, Invalid, PolicyHandle, Request, Reserved, Settle, Settled},
    telemetry::{
        ReservationCall,
        ReservationUnits::{Overage, Refunded, Reserved as ReservedUnits},
        Transport,
    },
    transport::{
        authentication::ClientName,
        decode,
        hold::{Held, Hold, malformed},
        message::ReserveMessage,
        status::Rejected,
    },
};

/// Who reserves or settles.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The client's name, where authentication is enabled.
    client: Option<&'a str>,
    /// How it came in.
    pub transport: Transport,
}

impl<'a> Caller<'a> {
    /// This client, by this transport.
    pub fn new(client: Option<&'a ClientName>, transport: Transport) -> Self {
        Self { client: client.map(|ClientName(name)| &**name), transport }
    }

    /// The client's name, where authentication is enabled.
    pub(super) fn client(&self) -> Option<&'a str> {
        self.client
    }
}

/// What a client asks of a reservation that it has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleCall {
    /// It cost so much; by default what was reserved.
    Commit(Option<i64>),
    /// It cost nothing.
    Cancel,
    /// Hold it for so long from now on, at most.
    Extend(Option<Micros>),
}

/// What became of that: nothing where nothing is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Units that it cost.
    pub charged: u64,
    /// Of what was reserved, what was given back.
    pub refunded: u64,
    /// What was charged beyond what was reserved.
    pub overage: u64,
    /// Extended: for how long it is held. Where nothing is, how long it would be: a client that extends in time need not know
    /// that there is nothing to extend.
    pub expires_after: Micros,
    /// Nothing is held since the shared store had not answered.
    pub degraded: bool,
}

impl<S: Store> CheckService<S> {
    /// Decides a check and counts its outcome, and holds what it costs where it is allowed. `encode` makes the answer from the
    /// decision, and where it is allowed from the hold and how long that lasts.
    ///
    /// # Errors
    /// [`Rejected`] where the request is invalid or the store fails.
    pub async fn reserve<T>(
        &self,
        message: Result<ReserveMessage<'_>, Invalid>,
        caller: &Caller<'_>,
        encode: impl FnOnce(&Answer<'_>, Option<(String, Micros)>) -> T,
    ) -> Result<T, Rejected> {
        let handle = self.limiter.policy_handle();
        let read = message.map_err(Rejected::from).and_then(|message| self.read(message));
        let (request, mut hold, ttl, on_expiry) =
            read.inspect_err(|_| count_failed(&handle, None, caller.transport, self.is_observed))?;
        let name = hold.name(caller.client);
        let checking = self.limiter.reserve(&handle, &request, &name, ttl, on_expiry);
        let reserved = self.outcome(&handle, checking).await;
        let answer = by_itself(reserved.as_ref().ok().map(|reserved| &reserved.answer));
        count(&handle, caller.transport, &request, answer, self.is_observed);
        let Reserved { answer, outcome, ttl } = reserved.map_err(|rejected| match &*rejected.field {
            "ttl" => rejected,
            _ => rejected.within("check"),
        })?;
        if !answer.summary.decision.allowed {
            handle.meters.reservation(answer.domain, ReservationCall::Refused, &[]);
            return Ok(encode(&answer, None));
        }
        let (held, expires_after, units) = match outcome {
            Some(ReservationOutcome::Reserved { expires_after }) => {
                let units = if answer.repeated { 0 } else { request.cost.unsigned_abs() };
                (Held::Units, expires_after, units)
            }
            _ if answer.degraded => (Held::Degraded, ttl, 0),
            _ => (Held::Nothing, ttl, 0),
        };
        hold.held = held;
        handle.meters.reservation(answer.domain, ReservationCall::Reserved, &[(ReservedUnits, units)]);
        Ok(encode(&answer, Some((hold.encode(), expires_after))))
    }

    /// The request to decide, the hold that its client gets, how long that lasts, and what becomes of it then.
    fn read<'m>(&self, message: ReserveMessage<'m>) -> Result<(Request<'m>, Hold, Option<Micros>, OnExpiry), Rejected> {
        let (ttl, on_expiry) = (decode::ttl(message.ttl.as_ref())?, decode::on_expiry(message.on_expiry)?);
        let hold = Hold::new(&message.check);
        let request = self.request(&message.check).map_err(|invalid| Rejected::from(invalid).within("check"))?;
        if request.cost < 1 {
            let message = format!("a reservation is of 1 to 2^32 units, not {}", request.cost);
            return Err(Invalid::field_error("check.cost", message).into());
        }
        if request.dry_run {
            return Err(Invalid::field_error("check.dry_run", "a reservation is no dry run: ask by Check").into());
        }
        Ok((request, hold, ttl, on_expiry))
    }

    /// Settles or extends a reservation, and counts what became of it.
    ///
    /// # Errors
    /// [`Rejected`] where this client has no such reservation, and where the store cannot tell.
    pub async fn settle(&self, hold: &str, call: SettleCall, caller: &Caller<'_>) -> Result<Settlement, Rejected> {
        let handle = self.limiter.policy_handle();
        let hold = Hold::decode(hold)?;
        let request = self.request(&hold.check()?).map_err(|_| malformed())?;
        if self.is_observed {
            let domain = handle.policy.domain(&request.domain).map_or(OTHER, |domain| domain_label(&domain.name));
            request::summarize(|summary| summary.domain = Some(domain.into()));
        }
        let reserved = request.cost.unsigned_abs();
        let (settle, call) = match call {
            SettleCall::Commit(actual) => {
                (Settle::Commit(decode::actual(actual, reserved)?), ReservationCall::Committed)
            }
            SettleCall::Cancel => (Settle::Cancel, ReservationCall::Cancelled),
            SettleCall::Extend(ttl) => (Settle::Extend(ttl), ReservationCall::Extended),
        };
        if hold.held != Held::Units {
            let domain = handle.policy.domain(&request.domain).map(|domain| domain.index);
            let expires_after = match settle {
                Settle::Extend(ttl) => request.reservation_ttl(&handle, ttl)?,
                Settle::Commit(_) | Settle::Cancel => 0,
            };
            handle.meters.reservation(domain, call, &[]);
            let degraded = hold.held == Held::Degraded;
            return Ok(Settlement { expires_after, degraded, ..Settlement::default() });
        }
        let name = hold.name(caller.client);
        let checking = self.limiter.settle(&handle, &request, &name, settle);
        let settled = self.outcome(&handle, checking).await?;
        concluded(&handle, call, reserved, &settled)
    }
}

/// What the client is told of what the store did.
fn concluded(
    handle: &PolicyHandle,
    call: ReservationCall,
    reserved: u64,
    settled: &Settled,
) -> Result<Settlement, Rejected> {
    let count = |call, units: &[_]| handle.meters.reservation(settled.domain, call, units);
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
