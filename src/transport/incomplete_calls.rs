//! Calls whose message, or HTTP body, has not arrived completely. They are bounded in time, in bytes for the port, and in
//! number for a connection whose client has not authenticated. A call whose message arrives with its head is not among
//! them.

mod framing;
mod wait;

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::{
    Request,
    body::{Body, Bytes, Frame, SizeHint},
};
use tonic::Status;
use tower::BoxError;

use framing::Framing;
pub use framing::PREFIX_BYTES;
pub use wait::{ConnectionCalls, IncompleteCalls, MAX_WAITING_UNAUTHENTICATED, max_bytes};
use wait::{Wait, head_bytes};

/// The data that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// One message or other content, and the end of the body after it.
    Message,
    /// Messages. A message that has started must arrive completely in time; the next one may start at any time. The
    /// stream can be evicted until its first message is complete, and within a message.
    Stream,
    /// Content that is discarded as it arrives, and the end of the body.
    Discarded,
}

/// The body of a request.
pub struct RequestBody<B> {
    body: B,
    calls: Arc<ConnectionCalls>,
    expected: Expected,
    /// Bytes of the request's head, which a call for one message holds until it has arrived.
    head_bytes: usize,
    message_bytes: usize,
    framing: Framing,
    /// Whether a message of the stream has been complete.
    had_complete_message: bool,
    /// Whether the task has yielded once, so that the connection could be read.
    has_yielded: bool,
    wait: Option<Wait>,
}

impl ConnectionCalls {
    /// Returns the request of a call that waits for `expected`.
    pub fn waiting<B>(self: &Arc<Self>, request: Request<B>, expected: Expected) -> Request<RequestBody<B>> {
        let (head, body) = request.into_parts();
        let head_bytes = if expected == Expected::Message { head_bytes(&head) } else { 0 };
        Request::from_parts(head, RequestBody { head_bytes, ..self.body(body, expected) })
    }

    /// Returns the body of a call that waits for `expected` and whose head is not held.
    pub fn body<B>(self: &Arc<Self>, body: B, expected: Expected) -> RequestBody<B> {
        let (calls, framing) = (Arc::clone(self), Framing::default());
        let (head_bytes, message_bytes, had_complete_message, has_yielded) = Default::default();
        RequestBody {
            body,
            calls,
            expected,
            head_bytes,
            message_bytes,
            framing,
            had_complete_message,
            has_yielded,
            wait: None,
        }
    }
}

impl<B> RequestBody<B> {
    /// Expects nothing from here on but the end: the content is discarded, and the received bytes no longer count.
    pub fn discarded(self) -> Self {
        Self { expected: Expected::Discarded, wait: None, has_yielded: false, ..self }
    }

    /// Whether any data has arrived or was waited for.
    fn has_started(&self) -> bool {
        self.wait.is_some()
            || self.message_bytes > 0
            || self.had_complete_message
            || self.framing.unfinished_bytes() > 0
    }

    fn received(&mut self, bytes: &[u8]) -> Result<(), Status> {
        if self.expected == Expected::Stream {
            let had_started = self.framing.unfinished_bytes() > 0;
            let has_ended = self.framing.advance(bytes);
            self.had_complete_message |= has_ended;
            if has_ended || !had_started {
                // A message that starts now has its own timeout.
                (self.wait, self.has_yielded) = (None, false);
            }
        } else {
            self.message_bytes += bytes.len();
        }
        match &mut self.wait {
            Some(wait) if self.expected != Expected::Discarded => wait.grow(bytes.len()),
            _ => Ok(()),
        }
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let (timed, unfinished) = match (self.expected, self.framing.unfinished_bytes()) {
            (Expected::Message, _) => (true, self.head_bytes + self.message_bytes),
            (Expected::Stream, unfinished) => (unfinished > 0, unfinished),
            (Expected::Discarded, _) => (true, 0),
        };
        if !timed && self.had_complete_message {
            return Poll::Pending;
        }
        let wait = match &mut self.wait {
            Some(wait) => wait,
            // Most messages arrive with the next read of the connection, and taking a slot costs more time than another
            // poll.
            None if !mem::replace(&mut self.has_yielded, true) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            none => match Wait::begin(&self.calls, timed, unfinished) {
                Ok(wait) => none.insert(wait),
                Err(status) => return Poll::Ready(status),
            },
        };
        wait.poll_end(cx)
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let received = frame.data_ref().map_or(Ok(()), |bytes| this.received(bytes));
                Poll::Ready(Some(received.map(|()| frame).map_err(Into::into)))
            }
            Poll::Ready(end) => {
                if matches!(end, Some(Err(_))) && !this.has_started() {
                    this.calls.connected().count_rapid_reset();
                }
                this.wait = None;
                Poll::Ready(end.map(|end| end.map_err(Into::into)))
            }
            Poll::Pending => this.poll_wait(cx).map(|status| Some(Err(status.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
