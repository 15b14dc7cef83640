//! The messages of a stream, until it ends: no faster than the rate of its connection.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tonic::Status;
use weir_server::{Connected, Pace, UnreadAnswer};

use super::termination::Termination;
use crate::transport::status::Rejected;

/// Most messages of a client that never pauses that are read between two polls of the termination.
const MAX_MESSAGES_BETWEEN_POLLS: u32 = 64;

/// Above any valid check. A stream keeps room for its largest message until it ends.
pub const LARGE_MESSAGE_BYTES: usize = 64 << 10;

/// The messages of a stream.
pub(super) struct Messages<M> {
    messages: M,
    termination: Termination,
    /// Where its connection has a rate.
    pace: Option<Pace>,
    /// Read, and waiting for its time.
    early: Option<Bytes>,
    messages_since_poll: u32,
    large: Option<Large>,
}

/// What is kept of large messages, and counted with the answers that its connection does not read.
struct Large {
    connected: Connected,
    bytes: usize,
    kept: Option<Arc<UnreadAnswer>>,
}

impl<M: Stream<Item = Result<Bytes, Status>> + Unpin> Messages<M> {
    /// These, no faster than `pace`, until the `termination`.
    pub(super) fn new(messages: M, termination: Termination, pace: Option<Pace>) -> Self {
        Self { messages, termination, pace, early: None, messages_since_poll: 0, large: None }
    }

    /// The same, each of them a check, on this connection: where its streams keep too much of large ones, they end.
    pub(super) fn keeping_few_large(self, connected: Connected) -> Self {
        Self { large: Some(Large { connected, bytes: LARGE_MESSAGE_BYTES, kept: None }), ..self }
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
        if self.pace.is_none() {
            return self.poll_message(cx);
        }
        if self.early.is_none() {
            match ready!(self.poll_message(cx)) {
                Some(Ok(message)) => self.early = Some(message),
                end => return Poll::Ready(end),
            }
        }
        if let Some(pace) = &mut self.pace {
            ready!(pace.poll_turn(cx));
        }
        Poll::Ready(self.early.take().map(Ok))
    }

    /// The next one that has come. A large one is counted as long as the stream keeps room for it.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        let next = ready!(self.messages.poll_next_unpin(cx));
        if let (Some(large), Some(Ok(message))) = (&mut self.large, &next)
            && message.len() > large.bytes
        {
            large.kept = None;
            match large.connected.unread(message.len()) {
                Ok(kept) => (large.bytes, large.kept) = (message.len(), Some(kept)),
                Err(overload) => return Poll::Ready(Some(Err(Rejected::from(overload).into()))),
            }
        }
        Poll::Ready(next)
    }
}
