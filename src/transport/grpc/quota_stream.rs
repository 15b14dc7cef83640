//! `StreamRateLimitQuotas`, with backpressure: reports are read only as fast as their answers are taken. Changed
//! assignments are sent when the client can take them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use tonic::{Code, Status};
use weir_server::{Connected, Permit, UnreadAnswer};
use weir_store::Store;

use super::messages::Messages;
use crate::transport::{rlqs::Session, status::Rejected};

pub(super) struct QuotaAnswers<M, S: Store> {
    /// `None` once they have ended.
    messages: Option<Messages<M>>,
    session: Session<S>,
    connected: Connected,
    /// Counts the current message with the unread answers until its reports are answered.
    unread: Option<Arc<UnreadAnswer>>,
    /// The error that the stream ends with, if any.
    error: Option<Status>,
    /// A stream that ended for the connection's age would cost its Envoy the assignments, although the replica stays.
    /// Taken with the first report, so that a silent stream keeps no connection.
    ageless: Option<Arc<()>>,
    _permit: Permit,
}

impl<M, S: Store> QuotaAnswers<M, S> {
    /// Returns the answers to these messages of this connection.
    pub(super) fn new(messages: Messages<M>, session: Session<S>, connected: Connected, permit: Permit) -> Self {
        let (unread, error, ageless) = (None, None, None);
        Self { messages: Some(messages), session, connected, unread, error, ageless, _permit: permit }
    }

    fn end(&mut self, error: Option<Status>) {
        (self.messages, self.error) = (None, error);
    }

    fn receive(&mut self, message: Bytes) -> Result<(), Status> {
        self.unread = Some(self.connected.unread(message.len(), None).map_err(Rejected::from)?);
        self.session.receive(message)?;
        self.ageless.get_or_insert_with(|| self.connected.keep_from_aging());
        Ok(())
    }

    /// Returns the next answer, if any.
    fn answer(&mut self) -> Option<BytesMut> {
        let answer = self.session.answer();
        if self.session.is_answered() {
            self.unread = None;
        }
        answer.unwrap_or_else(|status| {
            self.end(Some(status));
            None
        })
    }
}

impl<M, S> Stream for QuotaAnswers<M, S>
where
    M: Stream<Item = Result<Bytes, Status>> + Unpin,
    S: Store,
{
    type Item = Result<BytesMut, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        this.session.register(cx.waker());
        while let Some(messages) = &mut this.messages {
            let was_answered = this.session.is_answered();
            // The termination is polled even while reports wait, so that the stream ends in time.
            let next = if was_answered { messages.poll_next(cx) } else { messages.poll_end(cx) };
            match next {
                Poll::Ready(Some(Ok(message))) => {
                    if let Err(status) = this.receive(message) {
                        this.end(Some(status));
                    }
                }
                Poll::Ready(end) => this.end(end.and_then(Result::err)),
                Poll::Pending => match this.answer() {
                    Some(answer) => return Poll::Ready(Some(Ok(answer))),
                    None if was_answered => return Poll::Pending,
                    // All reports are answered, so the next message is polled.
                    None if this.session.is_answered() => {}
                    // Many reports without an answer must not delay other calls of the thread.
                    None => {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                },
            }
        }
        // An Envoy that has to reconnect to another replica keeps its assignments for a while.
        if this.error.as_ref().is_some_and(|status| status.code() == Code::Unavailable)
            && let Some(assignments) = this.session.final_assignments()
        {
            return Poll::Ready(Some(Ok(assignments)));
        }
        Poll::Ready(this.error.take().map(Err))
    }
}
