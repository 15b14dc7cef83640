//! `CheckStream`, with backpressure: one answer for each check, in order; checks are read only as fast as answers are
//! taken.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use futures_util::{
    FutureExt, Stream,
    future::{self, BoxFuture},
};
use tonic::Status;
use weir_server::{Connected, Permit};
use weir_store::Store;

use super::{codec::FRAME_BYTES, deadline::Deadline, messages::Messages, waiting::WaitingAnswers};
use crate::{
    telemetry::CallKind,
    transport::{
        api::{answer, batch},
        check_service::{CheckService, PendingAnswer},
        incomplete_calls::PREFIX_BYTES,
        status::Rejected,
    },
};

/// Maximum number of checks of one stream in flight. They share round trips to a store that must be awaited.
// Few enough that a hundred streams that never pause stay below the bound of the store's queue.
const MAX_IN_FLIGHT: usize = 64;

/// Returns a function that starts to answer each check of a stream, and holds its permit.
pub(super) fn checks<S: Store>(
    service: CheckService<S>,
    permit: Permit,
) -> impl FnMut(Bytes) -> PendingAnswer<'static, BytesMut> {
    // A separate reference count: all threads share the limiter's.
    let (service, mut out) = (Arc::new(service), BytesMut::new());
    move |message| {
        let _ = &permit;
        let handle = service.limiter().policy_guard();
        match batch::in_place(&service, &handle, Ok(&message), CallKind::GrpcStream, mem::take(&mut out)) {
            PendingAnswer::Ready(mut answers) => {
                let answer = answers.split();
                out = answers;
                PendingAnswer::Ready(answer)
            }
            PendingAnswer::Waiting(answer) => match service.check_permit(&handle, CallKind::GrpcStream) {
                Ok(permit) => {
                    let (service, since) = (Arc::clone(&service), Instant::now());
                    let timed = move |answer| {
                        drop(permit);
                        service.timed(CallKind::GrpcStream, since);
                        answer
                    };
                    PendingAnswer::Waiting(answer.map(timed).boxed())
                }
                Err(overload) => {
                    answer::write_error(overload.into(), &mut out);
                    PendingAnswer::Ready(out.split())
                }
            },
        }
    }
}

/// The answers of a stream. `handler` starts to answer a message; `timed` records that so many messages in a row were
/// answered synchronously, the first of them at this time.
pub(super) struct Answers<M, H, T: Fn(u32, Instant)> {
    /// `None` once they have ended.
    messages: Option<Messages<M>>,
    handler: H,
    timed: T,
    /// Empty if none waits.
    in_flight: WaitingAnswers,
    /// The error that the stream ends with, if any.
    error: Option<Status>,
    /// Ends the stream, regardless of checks in flight.
    deadline: Option<BoxFuture<'static, Status>>,
    burst: Option<Burst>,
}

/// Consecutive messages that are answered synchronously, until tonic sends the answers at [`FRAME_BYTES`]: sending is
/// not part of a check's duration. They are timed together, since reading the clock costs as much time as a part of a
/// decision.
struct Burst {
    since: Instant,
    messages: u32,
    answer_bytes: usize,
}

impl<M, H, T: Fn(u32, Instant)> Drop for Answers<M, H, T> {
    fn drop(&mut self) {
        self.end_burst();
    }
}

impl<M, H, T: Fn(u32, Instant)> Answers<M, H, T> {
    fn end_burst(&mut self) {
        if let Some(Burst { since, messages: messages @ 1.., .. }) = self.burst.take() {
            (self.timed)(messages, since);
        }
    }
}

impl<M, H, T> Answers<M, H, T>
where
    M: Stream<Item = Result<Bytes, Status>> + Unpin,
    H: FnMut(Bytes) -> PendingAnswer<'static, BytesMut>,
    T: Fn(u32, Instant),
{
    /// Returns the answers to these messages until the `deadline`.
    pub(super) fn new(
        messages: Messages<M>,
        handler: H,
        timed: T,
        connected: Connected,
        deadline: Option<Deadline>,
    ) -> Self {
        Self {
            messages: Some(messages),
            handler,
            timed,
            in_flight: WaitingAnswers::new(connected),
            error: None,
            deadline: deadline.map(|deadline| deadline.passed().boxed()),
            burst: None,
        }
    }

    /// Ends the stream if its deadline has passed, without waiting for checks in flight.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) {
        let Some(deadline) = &mut self.deadline else { return };
        if let Poll::Ready(status) = deadline.as_mut().poll(cx) {
            (self.deadline, self.messages, self.error) = (None, None, Some(status));
            self.in_flight.clear();
        }
    }

    /// Starts to answer a message. Returns the answer, unless it or an earlier one must be awaited.
    fn handle(&mut self, message: Bytes) -> Option<BytesMut> {
        let new = || Burst { since: Instant::now(), messages: 0, answer_bytes: 0 };
        let burst = self.burst.get_or_insert_with(new);
        let waiting = match (self.handler)(message) {
            PendingAnswer::Ready(answer) => {
                burst.messages += 1;
                burst.answer_bytes += PREFIX_BYTES + answer.len();
                if burst.answer_bytes >= FRAME_BYTES {
                    self.end_burst();
                }
                if self.in_flight.is_empty() {
                    return Some(answer);
                }
                future::ready(answer).boxed()
            }
            PendingAnswer::Waiting(answer) => {
                self.end_burst();
                answer
            }
        };
        self.in_flight.push(waiting);
        None
    }
}

impl<M, H, T> Stream for Answers<M, H, T>
where
    M: Stream<Item = Result<Bytes, Status>> + Unpin,
    H: FnMut(Bytes) -> PendingAnswer<'static, BytesMut> + Unpin,
    T: Fn(u32, Instant) + Unpin,
{
    type Item = Result<BytesMut, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        this.poll_deadline(cx);
        while this.in_flight.len() < MAX_IN_FLIGHT
            && let Some(messages) = &mut this.messages
        {
            match messages.poll_next(cx) {
                Poll::Ready(Some(Ok(message))) => {
                    if let Some(answer) = this.handle(message) {
                        return Poll::Ready(Some(Ok(answer)));
                    }
                }
                Poll::Ready(end) => {
                    this.messages = None;
                    this.error = end.and_then(Result::err);
                }
                Poll::Pending => break,
            }
        }
        if this.in_flight.len() >= MAX_IN_FLIGHT
            && let Some(messages) = &mut this.messages
        {
            messages.read_ahead(cx);
        }
        this.end_burst();
        match ready!(this.in_flight.poll_next(cx)) {
            Some(Ok(answer)) => Poll::Ready(Some(Ok(answer))),
            Some(Err(overload)) => {
                (this.messages, this.error) = (None, None);
                this.in_flight.clear();
                Poll::Ready(Some(Err(Rejected::from(overload).into())))
            }
            None if this.messages.is_some() => Poll::Pending,
            None => Poll::Ready(this.error.take().map(Err)),
        }
    }
}

#[cfg(test)]
mod tests;
