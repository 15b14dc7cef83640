//! The calls about reservations, from the bytes of a message to those of its answer.

use std::time::Instant;

use bytes::{BufMut, BytesMut};
use prost::encoding::encode_varint;
use weir_core::{algorithm::message::duration, domain::Micros};
use weir_store::Store;

use super::{answer, call::encoded};
use crate::{
    limiter::{Answer, Invalid},
    proto::{CancelResponse, CommitResponse, ExtendResponse, ReserveResponse},
    transport::{
        check_service::{Caller, CheckService, SettleCall, Settlement},
        decode,
        message::{self, ReserveMessage},
        status::Rejected,
    },
};

/// The tag before the decision of `ReserveResponse`: its field and wire type.
const DECISION: u8 = 1 << 3 | 2;

/// `Reserve`. `encode` gets the decision too.
///
/// # Errors
/// [`Rejected`] where the request is invalid or the store fails.
pub async fn reserve<S: Store, T>(
    service: &CheckService<S>,
    message: Result<ReserveMessage<'_>, Invalid>,
    caller: &Caller<'_>,
    encode: impl FnOnce(&Answer<'_>, BytesMut) -> T,
) -> Result<T, Rejected> {
    let since = Instant::now();
    let summary_only = message.as_ref().is_ok_and(|message| message.check.summary_only);
    let encode = |answer: &Answer<'_>, hold: Option<(String, Micros)>| {
        let (mut decision, mut out) = (BytesMut::new(), BytesMut::new());
        answer::write(answer, summary_only, &mut decision);
        out.put_u8(DECISION);
        encode_varint(decision.len() as u64, &mut out);
        out.put_slice(&decision);
        if let Some((hold, expires_after)) = hold {
            out.put_slice(&encoded(&ReserveResponse {
                decision: None,
                hold,
                expires_after: Some(duration(expires_after)),
            }));
        }
        encode(answer, out)
    };
    let reserved = service.reserve(message, caller, encode).await;
    service.timed(caller.transport, since);
    reserved
}

/// `Commit`.
///
/// # Errors
/// [`Rejected`] where this client has no such reservation, and where the store cannot tell.
pub async fn commit<S: Store>(
    service: &CheckService<S>,
    message: &[u8],
    caller: &Caller<'_>,
) -> Result<BytesMut, Rejected> {
    let message = message::commit(message)?;
    let settlement = settle(service, &message.hold, SettleCall::Commit(message.actual), caller).await?;
    Ok(encoded(&match settlement {
        Settlement::Settled { charged, refunded, overage } => {
            CommitResponse { charged: charged as i64, refunded: refunded as i64, overage, degraded: false }
        }
        other => CommitResponse { degraded: other.is_degraded(), ..CommitResponse::default() },
    }))
}

/// `Cancel`.
///
/// # Errors
/// As [`commit`].
pub async fn cancel<S: Store>(
    service: &CheckService<S>,
    message: &[u8],
    caller: &Caller<'_>,
) -> Result<BytesMut, Rejected> {
    let message = message::cancel(message)?;
    let settlement = settle(service, &message.hold, SettleCall::Cancel, caller).await?;
    Ok(encoded(&match settlement {
        Settlement::Settled { charged, refunded, .. } => {
            CancelResponse { charged: charged as i64, refunded: refunded as i64, degraded: false }
        }
        other => CancelResponse { degraded: other.is_degraded(), ..CancelResponse::default() },
    }))
}

/// `Extend`.
///
/// # Errors
/// As [`commit`].
pub async fn extend<S: Store>(
    service: &CheckService<S>,
    message: &[u8],
    caller: &Caller<'_>,
) -> Result<BytesMut, Rejected> {
    let message = message::extend(message)?;
    let ttl = decode::ttl(message.ttl.as_ref())?;
    let settlement = settle(service, &message.hold, SettleCall::Extend(ttl), caller).await?;
    let expires_after = match settlement {
        Settlement::Extended { expires_after } => expires_after,
        Settlement::Nothing { lasts, .. } => lasts,
        Settlement::Settled { .. } => 0,
    };
    Ok(encoded(&ExtendResponse { expires_after: Some(duration(expires_after)), degraded: settlement.is_degraded() }))
}

async fn settle<S: Store>(
    service: &CheckService<S>,
    hold: &str,
    call: SettleCall,
    caller: &Caller<'_>,
) -> Result<Settlement, Rejected> {
    let since = Instant::now();
    let settled = service.settle(hold, call, caller).await;
    service.timed(caller.transport, since);
    settled
}
