//! The messages of a stream until its termination, at most at the rate of its connection.

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

/// Maximum number of messages, from a client that never pauses, between two polls of the termination.
const MAX_MESSAGES_BETWEEN_POLLS: u32 = 64;

/// Size above that of any valid check. A stream keeps memory for its largest message until it ends.
pub const LARGE_MESSAGE_BYTES: usize = 64 << 10;

pub(super) struct Messages<M> {
    messages: M,
    termination: Termination,
    /// Set if the connection has a rate limit.
    pace: Option<Pace>,
    /// A message that was read before its time.
    early: Option<Bytes>,
    messages_since_poll: u32,
    large: Option<Large>,
}

/// The memory that is kept for large messages. It counts with the unread answers of the connection.
struct Large {
    connected: Connected,
    bytes: usize,
    kept: Option<Arc<UnreadAnswer>>,
}

impl<M: Stream<Item = Result<Bytes, Status>> + Unpin> Messages<M> {
    /// Returns these messages, no faster than `pace`, until the `termination`.
    pub(super) fn new(messages: M, termination: Termination, pace: Option<Pace>) -> Self {
        Self { messages, termination, pace, early: None, messages_since_poll: 0, large: None }
    }

    /// Counts large messages with the unread answers of this connection; the stream ends if one has no room. Each
    /// message is a check.
    pub(super) fn bound_large_messages(self, connected: Connected) -> Self {
        Self { large: Some(Large { connected, bytes: LARGE_MESSAGE_BYTES, kept: None }), ..self }
    }

    /// Polls the next message. Yields an error unless the client ends the stream. Must not be polled again after either
    /// end.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if let Some(status) = self.termination.closed_status() {
            return Poll::Ready(Some(Err(status)));
        }
        match self.poll_paced(cx) {
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

    /// Polls only the termination, while the next message cannot be taken yet.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        self.termination.poll(cx).map(|status| Some(Err(status)))
    }

    /// Polls the next message that the rate permits.
    fn poll_paced(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
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
            ready!(pace.poll_acquire(cx));
        }
        Poll::Ready(self.early.take().map(Ok))
    }

    /// Polls the next received message. A large one is counted as long as the stream keeps memory for it.
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
