//! The calls about reservations, from the encoded message to the encoded answer.

use std::time::Instant;

use bytes::{BufMut, BytesMut};
use weir_core::{algorithm::message::duration, domain::Micros};
use weir_store::Store;

use super::answer;
use crate::{
    limiter::{Answer, Invalid, Settle},
    proto::{
        CancelRequest, CancelResponse, CommitRequest, CommitResponse, ExtendRequest, ExtendResponse, ReserveRequest,
        ReserveResponse,
    },
    transport::{
        audit::Actor,
        check_service::{CheckService, Settlement},
        decode,
        fields::put_bytes,
        message::{self, CheckMessage, encoded},
        status::Rejected,
    },
};

/// The field number of the decision in `ReserveResponse`.
const DECISION: u32 = 1;

/// Serves `Reserve`. `encode` gets the decision and the encoded answer.
///
/// # Errors
/// [`Rejected`] if the request is invalid or the store fails.
pub async fn reserve<S: Store, T>(
    service: &CheckService<S>,
    message: Result<(CheckMessage<'_>, ReserveRequest), Invalid>,
    actor: &Actor,
    encode: impl FnOnce(&Answer<'_>, BytesMut) -> T,
) -> Result<T, Rejected> {
    let since = Instant::now();
    let summary_only = message.as_ref().is_ok_and(|(check, _)| check.summary_only);
    let encode = |answer: &Answer<'_>, hold: Option<(String, Micros)>| {
        let (mut decision, mut out) = (BytesMut::new(), BytesMut::new());
        answer::write(answer, summary_only, &mut decision);
        put_bytes(DECISION, &decision, &mut out);
        if let Some((hold, expires_after)) = hold {
            out.put_slice(&encoded(&ReserveResponse {
                decision: None,
                hold,
                expires_after: Some(duration(expires_after)),
            }));
        }
        encode(answer, out)
    };
    let reserved = service.reserve(message, actor, encode).await;
    service.timed(actor.transport, since);
    reserved
}

/// Serves `Commit`.
///
/// # Errors
/// [`Rejected`] if this client has no such reservation, and if the store fails.
pub async fn commit<S: Store>(service: &CheckService<S>, message: &[u8], actor: &Actor) -> Result<BytesMut, Rejected> {
    let CommitRequest { hold, actual } = message::read(message)?;
    let settled = settle(service, &hold, Settle::Commit(decode::actual(actual)?), actor).await?;
    let Settlement { charged, refunded, overage, degraded, .. } = settled;
    Ok(encoded(&CommitResponse { charged: charged as i64, refunded: refunded as i64, overage, degraded }))
}

/// Serves `Cancel`.
///
/// # Errors
/// As [`commit`].
pub async fn cancel<S: Store>(service: &CheckService<S>, message: &[u8], actor: &Actor) -> Result<BytesMut, Rejected> {
    let CancelRequest { hold } = message::read(message)?;
    let Settlement { charged, refunded, degraded, .. } = settle(service, &hold, Settle::Cancel, actor).await?;
    Ok(encoded(&CancelResponse { charged: charged as i64, refunded: refunded as i64, degraded }))
}

/// Serves `Extend`.
///
/// # Errors
/// As [`commit`].
pub async fn extend<S: Store>(service: &CheckService<S>, message: &[u8], actor: &Actor) -> Result<BytesMut, Rejected> {
    let ExtendRequest { hold, ttl } = message::read(message)?;
    let settled = settle(service, &hold, Settle::Extend(decode::ttl(ttl.as_ref())?), actor).await?;
    let Settlement { expires_after, degraded, .. } = settled;
    Ok(encoded(&ExtendResponse { expires_after: Some(duration(expires_after)), degraded }))
}

async fn settle<S: Store>(
    service: &CheckService<S>,
    hold: &str,
    settle: Settle,
    actor: &Actor,
) -> Result<Settlement, Rejected> {
    let since = Instant::now();
    let settled = service.settle(hold, settle, actor).await;
    service.timed(actor.transport, since);
    settled
}
