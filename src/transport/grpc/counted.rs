//! Counts the answers of a stream until the client reads them: HTTP/2 takes as many from each stream as the
//! flow-control window of its client has room for.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::body::{Body, Bytes, Frame};
use tonic::Status;
use weir_server::Connected;

use super::termination::trailers;
use crate::transport::status::Rejected;

/// Memory that a piece of answers takes besides its bytes until it is sent.
const PIECE_BYTES: usize = 256;

/// The body of a stream. It ends if the clients of the port leave too many answers unread.
pub(super) struct CountedBody<B> {
    /// `None` once it has ended that way.
    body: Option<B>,
    connected: Connected,
}

impl<B> CountedBody<B> {
    /// Counts the answers of `body` with those of this connection.
    pub(super) fn new(body: B, connected: Connected) -> Self {
        Self { body: Some(body), connected }
    }
}

impl<B: Body<Data = Bytes, Error = Status> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { body, connected } = &mut *self;
        let Some(open) = body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(open).poll_frame(cx));
        let Some(Ok(Some(bytes))) = frame.as_ref().map(|frame| frame.as_ref().map(|frame| frame.data_ref())) else {
            return Poll::Ready(frame);
        };
        match connected.unread(bytes.len() + PIECE_BYTES) {
            Ok(unread) => Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| unread.with(bytes))))),
            Err(overload) => {
                *body = None;
                Poll::Ready(Some(Ok(Frame::trailers(trailers(&Rejected::from(overload).into())))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }
}
