//! `CheckStream`: one answer for each check, in order, read no further ahead than its answers are taken.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use futures_util::{
    FutureExt, Stream, StreamExt,
    future::{self, BoxFuture},
    stream::FuturesOrdered,
};
use hyper::header::HeaderValue;
use tonic::Status;
use weir_server::Pace;
use weir_store::Store;

use super::{
    answer, call,
    codec::{FRAME_BYTES, PREFIX_BYTES},
    deadline::Deadline,
    termination::Termination,
};
use crate::{
    telemetry::Transport,
    transport::{
        check_service::{CheckService, Checked},
        observer::return_id,
    },
};

/// Most checks of one stream that are under way at once. They share round trips to a store that is waited for.
// Few enough that a hundred streams that never pause stay below the bound of the store's queue.
const MAX_UNDER_WAY: usize = 64;
/// Most messages of a client that never pauses that are read between two polls of the termination.
const MAX_MESSAGES_BETWEEN_POLLS: u32 = 64;

/// The checks of a stream, until it ends.
pub(super) struct Messages<M> {
    messages: M,
    termination: Termination,
    /// Where its connection has a rate.
    pace: Option<Pace>,
    /// Read, and waiting for its time.
    early: Option<Bytes>,
    messages_since_poll: u32,
}

impl<M: Stream<Item = Result<Bytes, Status>> + Unpin> Messages<M> {
    /// These, no faster than `pace`, until the `termination`.
    pub(super) fn new(messages: M, termination: Termination, pace: Option<Pace>) -> Self {
        Self { messages, termination, pace, early: None, messages_since_poll: 0 }
    }

    /// The next one; an error where they end otherwise than by the client. It must not be polled again after either end.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if let Some(status) = self.termination.closed_status() {
            return Poll::Ready(Some(Err(status)));
        }
        match self.poll_turn(cx) {
            Poll::Ready(next) if self.messages_since_poll < MAX_MESSAGES_BETWEEN_POLLS => {
                self.messages_since_poll += 1;
                Poll::Ready(next)
            }
            next => {
                self.messages_since_poll = 0;
                match self.termination.poll(cx) {
                    Poll::Ready(status) => Poll::Ready(Some(Err(status))),
                    Poll::Pending => next,
                }
            }
        }
    }

    /// Waits only for their end, where the next one cannot be taken yet.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        self.termination.poll(cx).map(|status| Some(Err(status)))
    }

    /// The next one that is due.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        let Some(pace) = &mut self.pace else { return self.messages.poll_next_unpin(cx) };
        if self.early.is_none() {
            match ready!(self.messages.poll_next_unpin(cx)) {
                Some(Ok(message)) => self.early = Some(message),
                end => return Poll::Ready(end),
            }
        }
        ready!(pace.poll_turn(cx));
        Poll::Ready(self.early.take().map(Ok))
    }
}

/// A check that was begun.
pub(super) enum Begun {
    /// Its answer is there, and was at this moment.
    Ready(BytesMut, Instant),
    /// The store is waited for.
    Waiting(BoxFuture<'static, BytesMut>),
}

/// Begins each check of a stream, with its time of arrival.
pub(super) fn begin<S: Store>(service: CheckService<S>) -> impl FnMut(Bytes, Instant) -> Begun {
    // Its own count of who holds it: the limiter's is shared by all threads.
    let service = Arc::new(service);
    let mut out = BytesMut::new();
    move |message, since| {
        let handle = service.limiter().current();
        match call::in_place(&service, &handle, Ok(&message), Transport::GrpcStream, mem::take(&mut out)) {
            Checked::Ready(mut answers) => {
                let answer = answers.split();
                out = answers;
                Begun::Ready(answer, service.timed(Transport::GrpcStream, since))
            }
            Checked::Waiting(answer) => match service.permit() {
                Ok(permit) => {
                    let service = Arc::clone(&service);
                    let timed = move |answer| {
                        drop(permit);
                        service.timed(Transport::GrpcStream, since);
                        answer
                    };
                    Begun::Waiting(answer.map(timed).boxed())
                }
                Err(overload) => {
                    answer::write_error(overload.into(), &mut out);
                    Begun::Ready(out.split(), service.timed(Transport::GrpcStream, since))
                }
            },
        }
    }
}

/// The answers of a stream.
pub(super) struct Answers<M, B> {
    /// None once they have ended.
    messages: Option<Messages<M>>,
    begin: B,
    /// In the order of their checks; empty where none waits.
    under_way: FuturesOrdered<BoxFuture<'static, BytesMut>>,
    /// How the stream ends, where that is an error.
    error: Option<Status>,
    /// Its end, whatever is under way.
    deadline: Option<BoxFuture<'static, Status>>,
    /// The client's request id.
    id: Option<HeaderValue>,
    /// When the last answer was made, where the next check follows at once, and the bytes that were made until then. tonic
    /// sends them when they are [`FRAME_BYTES`]; what it takes for that is no part of a check's duration.
    since: Option<Instant>,
    made_bytes: usize,
}

impl<M, B> Answers<M, B>
where
    M: Stream<Item = Result<Bytes, Status>> + Unpin,
    B: FnMut(Bytes, Instant) -> Begun,
{
    /// Those to these messages until the `deadline`, each begun by `begin`. A stream that fails tells the client the `id` that
    /// it gave the call.
    pub(super) fn new(messages: Messages<M>, begin: B, deadline: Option<Deadline>, id: Option<HeaderValue>) -> Self {
        Self {
            messages: Some(messages),
            begin,
            under_way: FuturesOrdered::new(),
            error: None,
            deadline: deadline.map(|deadline| deadline.passed().boxed()),
            id,
            since: None,
            made_bytes: 0,
        }
    }

    /// Ends the stream where its deadline has passed. What is under way is not waited for.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) {
        let Some(deadline) = &mut self.deadline else { return };
        if let Poll::Ready(status) = deadline.as_mut().poll(cx) {
            (self.deadline, self.messages, self.error) = (None, None, Some(status));
            self.under_way.clear();
        }
    }

    /// Begins to answer a check. The answer where neither it nor one before it is waited for.
    fn begin(&mut self, message: Bytes) -> Option<BytesMut> {
        let since = self.since.take().unwrap_or_else(Instant::now);
        let waiting = match (self.begin)(message, since) {
            Begun::Ready(answer, now) => {
                self.made_bytes += PREFIX_BYTES + answer.len();
                if self.made_bytes < FRAME_BYTES {
                    self.since = Some(now);
                } else {
                    self.made_bytes = 0;
                }
                if self.under_way.is_empty() {
                    return Some(answer);
                }
                future::ready(answer).boxed()
            }
            Begun::Waiting(answer) => answer,
        };
        self.under_way.push_back(waiting);
        None
    }
}

impl<M, B> Stream for Answers<M, B>
where
    M: Stream<Item = Result<Bytes, Status>> + Unpin,
    B: FnMut(Bytes, Instant) -> Begun + Unpin,
{
    type Item = Result<BytesMut, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        this.poll_deadline(cx);
        while this.under_way.len() < MAX_UNDER_WAY
            && let Some(messages) = &mut this.messages
        {
            match messages.poll_next(cx) {
                Poll::Ready(Some(Ok(message))) => {
                    if let Some(answer) = this.begin(message) {
                        return Poll::Ready(Some(Ok(answer)));
                    }
                }
                Poll::Ready(end) => {
                    this.messages = None;
                    this.error = end.and_then(Result::err);
                }
                Poll::Pending => {
                    (this.since, this.made_bytes) = (None, 0);
                    break;
                }
            }
        }
        match ready!(this.under_way.poll_next_unpin(cx)) {
            Some(answer) => Poll::Ready(Some(Ok(answer))),
            None if this.messages.is_some() => Poll::Pending,
            None => Poll::Ready(this.error.take().map(|mut status| {
                return_id(this.id.take(), status.metadata_mut().as_mut());
                Err(status)
            })),
        }
    }
}

#[cfg(test)]
mod tests;
