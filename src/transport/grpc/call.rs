//! The calls of `weir.v1.RateLimiter`, from the bytes of a message to those of its answer.

use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::join_all;
use prost::{Message, encoding::encode_varint};

use super::answer;
use crate::{
    limiter::{Answer, Snapshot},
    proto::ResetResponse,
    store::Store,
    telemetry::Transport,
    transport::{
        decode::{self, MAX_BATCH},
        message::{self, CheckMessage},
        observe::Checks,
        status::Refused,
    },
};

/// Room for an answer of two levels.
const USUAL_ANSWER: usize = 256;

/// What stands before each answer of a batch: its field and kind.
const RESULT: u8 = 1 << 3 | 2;

/// `Check`.
///
/// # Errors
/// [`Refused`] when there is no decision.
pub async fn check<S: Store>(checks: &Checks<S>, message: Bytes) -> Result<BytesMut, Refused> {
    if checks.answers_at_once() {
        check_at_once(checks, &message)
    } else {
        // Boxed, so that what memory decides does not carry the room for it around.
        Box::pin(check_by_waiting(checks, message)).await
    }
}

/// The same where the store needs no waiting.
///
/// # Errors
/// [`Refused`] when there is no decision.
// Apart from what may wait: what a future holds is moved with it.
#[inline(never)]
pub fn check_at_once<S: Store>(checks: &Checks<S>, message: &[u8]) -> Result<BytesMut, Refused> {
    let since = Instant::now();
    let snapshot = checks.limiter().current();
    let mut out = BytesMut::with_capacity(USUAL_ANSWER);
    let write = |answer: &Answer<'_>, summary_only| answer::write(answer, summary_only, &mut out);
    let answered = checks.check_at_once(&snapshot, CheckMessage::read(message), Transport::Grpc, write);
    checks.timed(Transport::Grpc, since);
    answered?;
    Ok(out)
}

async fn check_by_waiting<S: Store>(checks: &Checks<S>, message: Bytes) -> Result<BytesMut, Refused> {
    let since = Instant::now();
    let snapshot = checks.limiter().snapshot();
    let mut out = BytesMut::with_capacity(USUAL_ANSWER);
    let write = |answer: &Answer<'_>, summary_only| answer::write(answer, summary_only, &mut out);
    let answered = checks.check(&snapshot, CheckMessage::read(&message), Transport::Grpc, write).await;
    checks.timed(Transport::Grpc, since);
    answered?;
    Ok(out)
}

/// `CheckBatch`: each check is answered for itself, in their order. Those of one key are decided in it too.
///
/// # Errors
/// [`Refused`] for what is no batch, or has too many checks.
pub async fn check_batch<S: Store>(checks: &Checks<S>, message: Bytes) -> Result<BytesMut, Refused> {
    let since = Instant::now();
    let batch = message::batch(&message)?;
    if batch.clone().take(MAX_BATCH + 1).count() > MAX_BATCH {
        return Err(decode::too_many_checks().into());
    }
    let mut out = BytesMut::new();
    if checks.answers_at_once() {
        answer_at_once(checks, batch, &mut out);
    } else {
        let snapshot = checks.limiter().snapshot();
        let snapshot = &*snapshot;
        let answers = batch.map(|message| async move {
            let mut answer = BytesMut::new();
            in_place(checks, snapshot, message, Transport::GrpcBatch, &mut answer).await;
            answer
        });
        // All at once, so that they share round trips. Each begins before the next.
        join_all(answers).await.iter().for_each(|answer| put_result(answer, &mut out));
    }
    checks.timed(Transport::GrpcBatch, since);
    Ok(out)
}

fn answer_at_once<'m, S: Store>(checks: &Checks<S>, batch: impl Iterator<Item = &'m [u8]>, out: &mut BytesMut) {
    let snapshot = checks.limiter().current();
    let mut answer = BytesMut::new();
    for message in batch {
        answer.clear();
        in_place_at_once(checks, &snapshot, message, Transport::GrpcBatch, &mut answer);
        put_result(&answer, out);
    }
}

fn put_result(answer: &[u8], out: &mut BytesMut) {
    out.put_u8(RESULT);
    encode_varint(answer.len() as u64, out);
    out.put_slice(answer);
}

/// Appends the answer to a check that is one of many, or in its place why there is none.
pub async fn in_place<S: Store>(
    checks: &Checks<S>,
    snapshot: &Snapshot,
    message: &[u8],
    transport: Transport,
    out: &mut BytesMut,
) {
    let write = |answer: &Answer<'_>, summary_only| answer::write(answer, summary_only, out);
    if let Err(refused) = checks.check(snapshot, CheckMessage::read(message), transport, write).await {
        answer::write_error(refused, out);
    }
}

/// The same where the store needs no waiting.
pub fn in_place_at_once<S: Store>(
    checks: &Checks<S>,
    snapshot: &Snapshot,
    message: &[u8],
    transport: Transport,
    out: &mut BytesMut,
) {
    let write = |answer: &Answer<'_>, summary_only| answer::write(answer, summary_only, out);
    if let Err(refused) = checks.check_at_once(snapshot, CheckMessage::read(message), transport, write) {
        answer::write_error(refused, out);
    }
}

/// `Reset`.
///
/// # Errors
/// [`Refused`] for what is no request, and where the store cannot tell.
pub async fn reset<S: Store>(checks: &Checks<S>, message: Bytes) -> Result<BytesMut, Refused> {
    let message = message::reset(&message)?;
    let done = checks.reset(&decode::reset(&message)?, message.subtree).await?;
    Ok(encoded(&ResetResponse { existed: done.existed, scanned: done.scanned }))
}

/// The bytes of a message.
pub fn encoded(message: &impl Message) -> BytesMut {
    let mut out = BytesMut::with_capacity(USUAL_ANSWER);
    // It fails where there is no room, and this makes its own.
    let _ = message.encode(&mut out);
    out
}
