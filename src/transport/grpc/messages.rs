//! The messages of a stream until its termination, at most at the rate of its connection.

use std::{
    collections::VecDeque,
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

/// Bytes of messages that are read although no check can be started yet. HTTP/2 would hold them frame by frame, and ends
/// the connection when it holds too many small ones, of which many clients send one for each message.
pub const READ_AHEAD_BYTES: usize = 128 << 10;

/// Size above any valid check's. A stream keeps memory for its largest message until it ends.
pub const LARGE_MESSAGE_BYTES: usize = 64 << 10;

pub(super) struct Messages<M> {
    messages: M,
    termination: Termination,
    /// Set if the connection has a rate limit.
    pace: Option<Pace>,
    /// Messages that were read ahead, and then the end of the stream if that came.
    early: VecDeque<Option<Result<Bytes, Status>>>,
    early_bytes: usize,
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
        Self {
            messages,
            termination,
            pace,
            early: VecDeque::new(),
            early_bytes: 0,
            messages_since_poll: 0,
            large: None,
        }
    }

    /// Counts large messages with the unread answers of this connection; the stream ends if a message exceeds the
    /// bound. Each message is a check.
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

    /// Reads ahead while no further check can be started.
    pub(super) fn read_ahead(&mut self, cx: &mut Context<'_>) {
        while self.early_bytes < READ_AHEAD_BYTES && !matches!(self.early.back(), Some(None | Some(Err(_)))) {
            let Poll::Ready(next) = self.poll_received(cx) else { break };
            self.early_bytes += early_bytes(&next);
            self.early.push_back(next);
        }
    }

    /// Polls the next message that the rate permits.
    fn poll_paced(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if self.pace.is_some() && self.early.is_empty() {
            let next = ready!(self.poll_received(cx));
            self.early_bytes += early_bytes(&next);
            self.early.push_back(next);
        }
        if let (Some(pace), Some(Some(Ok(_)))) = (&mut self.pace, self.early.front())
            && pace.poll_acquire(cx).is_pending()
        {
            self.read_ahead(cx);
            return Poll::Pending;
        }
        match self.early.pop_front() {
            Some(next) => {
                self.early_bytes -= early_bytes(&next);
                Poll::Ready(next)
            }
            None => self.poll_received(cx),
        }
    }

    /// Polls the next received message. A large one is counted as long as the stream keeps memory for it.
    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        let next = ready!(self.messages.poll_next_unpin(cx));
        if let (Some(large), Some(Ok(message))) = (&mut self.large, &next)
            && message.len() > large.bytes
        {
            large.kept = None;
            match large.connected.unread(message.len(), None) {
                Ok(kept) => (large.bytes, large.kept) = (message.len(), Some(kept)),
                Err(overload) => return Poll::Ready(Some(Err(Rejected::from(overload).into()))),
            }
        }
        Poll::Ready(next)
    }
}

/// Returns the bytes of a message that is kept.
fn early_bytes(next: &Option<Result<Bytes, Status>>) -> usize {
    size_of_val(next) + next.as_ref().and_then(|next| next.as_ref().ok()).map_or(0, Bytes::len)
}
