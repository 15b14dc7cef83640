//! The answers of a stream, counted until they are read: HTTP/2 takes as many from each as its client's window has room for.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::body::{Body, Bytes, Frame};
use tonic::Status;
use weir_server::Connected;

use super::termination::trailers;
use crate::transport::status::Rejected;

/// What a piece of answers takes beside its bytes, until it is sent.
const PIECE_BYTES: usize = 256;

/// The body of a stream. Where the clients of the port leave too many answers, it ends.
pub(super) struct CountedBody<B> {
    /// None once it has ended so.
    body: Option<B>,
    connected: Connected,
}

impl<B> CountedBody<B> {
    /// Counts the answers of `body` among those of this connection.
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
