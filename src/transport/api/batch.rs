//! The calls with several checks, from the encoded message to the encoded answer.

use std::{mem, sync::Arc, time::Instant};

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt, stream::FuturesOrdered};
use prost::encoding;
use tokio::task::yield_now;
use weir_server::{Overload, Permit};
use weir_store::Store;

use super::answer;
use crate::{
    limiter::{AllAnswers, CheckAll, Invalid, PolicyHandle, check_all::MAX_TOGETHER},
    telemetry::CallKind,
    transport::{
        check_service::{CheckService, PendingAnswer},
        decode::{self, MAX_BATCH},
        fields::put_bytes,
        message::{self, CheckMessage, USUAL_ANSWER},
        status::Rejected,
    },
};

/// Maximum number of checks of a batch that are decided before the task yields to other calls of the thread.
const MAX_IN_A_ROW: usize = 100;

/// The field number of the results in `CheckBatchResponse`.
const RESULT: u32 = 1;
/// Bytes of the tag and the length of a result of usual length.
const RESULT_BYTES: usize = 3;

/// The field numbers of `CheckAllResponse`.
const ALL_ALLOWED: u32 = 1;
const ALL_RESULT: u32 = 2;

/// Serves `CheckBatch`: each check has its own answer, in their order. Checks of one key are also decided in this
/// order.
///
/// # Errors
/// [`Rejected`] if the message is not a batch or has too many checks, and if too many calls wait for the store.
pub async fn check_batch<S: Store>(service: &CheckService<S>, message: Bytes) -> Result<BytesMut, Rejected> {
    let since = Instant::now();
    let batch = message::batch(&message)?;
    let count = batch.clone().take(MAX_BATCH + 1).count();
    if count > MAX_BATCH {
        return Err(decode::too_many_checks().into());
    }
    let batch = start_batch(service, count, batch.map(Ok), CallKind::GrpcBatch).await?;
    drop(message);
    let answers = batch.answers().await;
    service.timed(CallKind::GrpcBatch, since);
    Ok(answers)
}

/// A batch whose checks have started, with the answers that are ready.
#[must_use = "the store is waited for"]
pub struct StartedBatch {
    count: usize,
    /// The answers to the first checks, encoded as `CheckBatchResponse`.
    out: BytesMut,
    /// The answers to the other checks.
    waiting: FuturesOrdered<<PendingAnswer<'static, BytesMut> as IntoFuture>::IntoFuture>,
    /// One permit for all checks that wait.
    permit: Option<Permit>,
}

/// Starts to answer `count` checks. A check that could not be read is answered with its error.
///
/// # Errors
/// [`Overload`] if a check has to wait while too many calls do.
pub async fn start_batch<S: Store, M: AsRef<[u8]>>(
    service: &CheckService<S>,
    count: usize,
    checks: impl Iterator<Item = Result<M, Invalid>>,
    transport: CallKind,
) -> Result<StartedBatch, Overload> {
    let handle = service.limiter().policy_guard();
    let mut batch = StartedBatch { count, out: BytesMut::new(), waiting: FuturesOrdered::new(), permit: None };
    let mut spare = BytesMut::new();
    for (number, check) in (1..).zip(checks) {
        let bytes = match check {
            Ok(ref bytes) => Ok(bytes.as_ref()),
            Err(invalid) => Err(invalid),
        };
        match in_place(service, &handle, bytes, transport, mem::take(&mut spare)) {
            PendingAnswer::Ready(answer) if batch.waiting.is_empty() => {
                batch.put(&answer);
                spare = answer;
                spare.clear();
            }
            answer if batch.permit.is_some() => batch.waiting.push_back(answer.into_future()),
            answer => match service.check_permit(&handle, transport) {
                Ok(permit) => {
                    batch.permit = Some(permit);
                    batch.waiting.push_back(answer.into_future());
                }
                Err(overload) if batch.out.is_empty() => return Err(overload),
                // Checks before it may be charged, so the call must not fail.
                Err(overload) => {
                    let mut error = BytesMut::new();
                    answer::write_error(overload.into(), &mut error);
                    batch.put(&error);
                }
            },
        }
        if number < count && number.is_multiple_of(MAX_IN_A_ROW) {
            // Starts the checks that wait. The store's queue bounds them; nothing bounds those that have not started.
            while let Some(Some(answer)) = batch.waiting.next().now_or_never() {
                batch.put(&answer);
            }
            yield_now().await;
        }
    }
    Ok(batch)
}

impl StartedBatch {
    fn put(&mut self, answer: &[u8]) {
        if self.out.is_empty() {
            // Answers are similar in length. Memory that doubles as answers are added would also be held until the
            // client reads them.
            self.out.reserve(self.count * (answer.len() + RESULT_BYTES));
        }
        put_bytes(RESULT, answer, &mut self.out);
    }

    /// Returns all answers, encoded as `CheckBatchResponse`. Checks that wait share round trips.
    pub async fn answers(mut self) -> BytesMut {
        while let Some(answer) = self.waiting.next().await {
            self.put(&answer);
        }
        self.out
    }
}

/// Answers one of many checks: `out` with the answer or the error appended.
#[inline]
pub fn in_place<S: Store>(
    service: &CheckService<S>,
    handle: &Arc<PolicyHandle>,
    bytes: Result<&[u8], Invalid>,
    transport: CallKind,
    mut out: BytesMut,
) -> PendingAnswer<'static, BytesMut> {
    service.check(handle, bytes, transport, move |answer, summary_only| {
        match answer {
            Ok(answer) => answer::write(answer, summary_only, &mut out),
            Err(rejected) => answer::write_error(rejected, &mut out),
        }
        out
    })
}

/// Serves `CheckAll`: the checks are decided in one step.
///
/// # Errors
/// [`Rejected`] if a check is invalid or the store fails.
pub async fn check_all<S: Store>(service: &CheckService<S>, message: Bytes) -> Result<BytesMut, Rejected> {
    let since = Instant::now();
    let checks = match message::batch(&message) {
        Ok(checks) if checks.clone().take(MAX_TOGETHER + 1).count() > MAX_TOGETHER => Err(CheckAll::wrong_number()),
        checks => checks.map(|checks| checks.map(CheckMessage::read).collect()),
    };
    let answer = service.check_all(checks.map_err(Into::into), CallKind::GrpcAll, write_all).await;
    service.timed(CallKind::GrpcAll, since);
    answer
}

/// Encodes a `CheckAllResponse`.
pub fn write_all(all: &AllAnswers<'_>, summary_only: &[bool]) -> BytesMut {
    let (mut out, mut one) = (BytesMut::new(), BytesMut::with_capacity(USUAL_ANSWER));
    if all.allowed {
        encoding::bool::encode(ALL_ALLOWED, &true, &mut out);
    }
    for (answer, summary_only) in all.answers.iter().zip(summary_only) {
        one.clear();
        answer::write(answer, *summary_only, &mut one);
        put_bytes(ALL_RESULT, &one, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use prost::Message as _;
    use weir_core::algorithm::Bounds;
    use weir_policy::Policy;
    use weir_store::{MemoryStore, SystemClock, memory::MemorySettings};

    use super::*;
    use crate::{
        limiter::Limiter,
        proto::{CheckBatchRequest, CheckBatchResponse, CheckRequest},
        telemetry::Metrics,
    };

    #[test]
    fn a_large_batch_gives_other_calls_their_turn() {
        let store = MemoryStore::new(MemorySettings::default(), SystemClock::new());
        let limiter = Limiter::new(store, Policy::new([]), Metrics::new());
        let service = CheckService::new(Arc::new(limiter), Bounds::default());
        for (checks, turns) in
            [(1, 1), (MAX_IN_A_ROW, 1), (MAX_IN_A_ROW + 1, 2), (MAX_BATCH, MAX_BATCH.div_ceil(MAX_IN_A_ROW))]
        {
            let check = CheckRequest { key: vec!["user".to_owned()], ..Default::default() };
            let message = CheckBatchRequest { checks: vec![check; checks] }.encode_to_vec();
            let mut batch = pin!(check_batch(&service, message.into()));
            let mut taken = 1;
            let answer = loop {
                match batch.poll_unpin(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(answer) => break answer.ok().unwrap(),
                    Poll::Pending => taken += 1,
                }
            };
            assert_eq!(taken, turns, "{checks} checks");
            assert_eq!(CheckBatchResponse::decode(answer).unwrap().results.len(), checks);
        }
    }
}
