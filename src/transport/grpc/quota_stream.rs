//! `StreamRateLimitQuotas`: reports are read no further ahead than their answers are taken; what changes meanwhile is told when
//! there is room.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use hyper::header::HeaderValue;
use tonic::{Code, Status};
use weir_server::Permit;
use weir_store::Store;

use super::messages::Messages;
use crate::transport::{observer::return_id, rlqs::Session};

/// The answers of a stream.
pub(super) struct QuotaAnswers<M, S: Store> {
    /// None once they have ended.
    messages: Option<Messages<M>>,
    session: Session<S>,
    /// How the stream ends, where that is an error.
    error: Option<Status>,
    id: Option<HeaderValue>,
    _permit: Permit,
}

impl<M, S: Store> QuotaAnswers<M, S> {
    /// Those to these messages. A stream that fails tells the client the `id` that it gave the call.
    pub(super) fn new(messages: Messages<M>, session: Session<S>, id: Option<HeaderValue>, permit: Permit) -> Self {
        Self { messages: Some(messages), session, error: None, id, _permit: permit }
    }

    fn end(&mut self, error: Option<Status>) {
        (self.messages, self.error) = (None, error);
    }

    /// The next answer; `None`: there is none yet, and the next message is due.
    fn answer(&mut self) -> Option<BytesMut> {
        match self.session.answer() {
            Ok(answer) => answer,
            Err(status) => {
                self.end(Some(status));
                None
            }
        }
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
            // Also while reports wait, so that a stream whose end has come ends.
            let next = if this.session.is_answered() { messages.poll_next(cx) } else { messages.poll_end(cx) };
            match next {
                Poll::Ready(Some(Ok(message))) => {
                    if let Err(status) = this.session.receive(&message) {
                        this.end(Some(status));
                    }
                }
                Poll::Ready(end) => this.end(end.and_then(Result::err)),
                Poll::Pending => match this.answer() {
                    Some(answer) => return Poll::Ready(Some(Ok(answer))),
                    None if this.messages.is_some() && this.session.is_answered() => return Poll::Pending,
                    None => {}
                },
            }
        }
        // An Envoy that is sent elsewhere keeps what it has, for a while.
        if this.error.as_ref().is_some_and(|status| status.code() == Code::Unavailable)
            && let Some(farewell) = this.session.farewell()
        {
            return Poll::Ready(Some(Ok(farewell)));
        }
        Poll::Ready(this.error.take().map(|mut status| {
            return_id(this.id.take(), status.metadata_mut().as_mut());
            Err(status)
        }))
    }
}
