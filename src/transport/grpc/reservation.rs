//! The calls about reservations, from the encoded message to the encoded answer.

use std::time::Instant;

use bytes::{BufMut, BytesMut};
use weir_core::{algorithm::message::duration, domain::Micros};
use weir_store::Store;

use super::{answer, call::encoded};
use crate::{
    limiter::{Answer, Invalid, Settle},
    proto::{
        CancelRequest, CancelResponse, CommitRequest, CommitResponse, ExtendRequest, ExtendResponse, ReserveRequest,
        ReserveResponse,
    },
    transport::{
        check_service::{CallContext, CheckService, Settlement},
        decode,
        fields::put_bytes,
        message::{self, CheckMessage},
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
    context: &CallContext<'_>,
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
    let reserved = service.reserve(message, context, encode).await;
    service.timed(context.transport, since);
    reserved
}

/// The calls that settle or extend a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// `Commit`.
    Commit,
    /// `Cancel`.
    Cancel,
    /// `Extend`.
    Extend,
}

/// Serves `Commit`, `Cancel` and `Extend`.
///
/// # Errors
/// [`Rejected`] if this client has no such reservation, and if the store fails.
pub async fn settle<S: Store>(
    service: &CheckService<S>,
    settling: Settling,
    message: &[u8],
    context: &CallContext<'_>,
) -> Result<BytesMut, Rejected> {
    let (hold, settle) = match settling {
        Settling::Commit => {
            let CommitRequest { hold, actual } = message::read(message)?;
            (hold, Settle::Commit(decode::actual(actual)?))
        }
        Settling::Cancel => {
            let CancelRequest { hold } = message::read(message)?;
            (hold, Settle::Cancel)
        }
        Settling::Extend => {
            let ExtendRequest { hold, ttl } = message::read(message)?;
            (hold, Settle::Extend(decode::ttl(ttl.as_ref())?))
        }
    };
    let since = Instant::now();
    let settled = service.settle(&hold, settle, context).await;
    service.timed(context.transport, since);
    let Settlement { charged, refunded, overage, expires_after, degraded } = settled?;
    let (charged, refunded) = (charged as i64, refunded as i64);
    Ok(match settling {
        Settling::Commit => encoded(&CommitResponse { charged, refunded, overage, degraded }),
        Settling::Cancel => encoded(&CancelResponse { charged, refunded, degraded }),
        Settling::Extend => encoded(&ExtendResponse { expires_after: Some(duration(expires_after)), degraded }),
    })
}
