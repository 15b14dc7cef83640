//! The termination of a stream by the server: its connection closes, the service drains, its credentials are revoked,
//! or its deadline passes.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::future::OptionFuture;
use hyper::{
    HeaderMap,
    body::{Body, Bytes, Frame},
};
use tonic::Status;
use tower::BoxError;
use weir_server::CloseSignal;

use super::deadline::Deadline;

use crate::transport::{
    authentication::StreamAuthorization,
    status::{Rejected, closed},
};

/// Resolves to the status that a stream ends with.
pub(super) struct Termination {
    close: CloseSignal,
    ended: Pin<Box<dyn Future<Output = Status> + Send>>,
}

impl Termination {
    /// Returns the termination at this close signal and, if there are any, at the deadline and when the credentials
    /// become invalid.
    pub(super) fn new(
        close: CloseSignal,
        deadline: Option<Deadline>,
        authorization: Option<StreamAuthorization>,
    ) -> Self {
        let said = close.clone().wait();
        let lost = OptionFuture::from(authorization.map(StreamAuthorization::lost));
        let passed = OptionFuture::from(deadline.map(Deadline::passed));
        let ended = Box::pin(async move {
            tokio::select! {
                biased;
                reason = said => closed(reason),
                Some(denied) = lost => Rejected::from(denied).into(),
                Some(status) = passed => status,
            }
        });
        Self { close, ended }
    }

    /// Returns the status of a stream whose connection closes. Cheap enough to call for each message of a client that
    /// never pauses.
    #[inline]
    pub(super) fn closed_status(&self) -> Option<Status> {
        self.close.closed().map(closed)
    }

    /// Waits for the termination. It must not be polled again after that.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        self.ended.as_mut().poll(cx)
    }
}

/// The body of a health watch or of reflection. It lasts until its own end or the [`Termination`].
pub(super) struct TerminatedBody<B, H = ()> {
    body: B,
    termination: Option<Termination>,
    side: Side,
    _held: H,
}

/// The side of the call that the body belongs to.
pub(super) enum Side {
    /// The client's request, which fails with the status. Reflection reads it on a separate task, which would keep the
    /// connection open.
    Request,
    /// The server's answer, whose trailers contain the status.
    Answer,
}

impl<B> TerminatedBody<B> {
    /// Ends `body` at `termination`.
    pub(super) fn new(body: B, termination: Termination, side: Side) -> Self {
        Self { body, termination: Some(termination), side, _held: () }
    }

    /// Holds this until the body is dropped.
    pub(super) fn holding<H>(self, held: H) -> TerminatedBody<B, H> {
        let Self { body, termination, side, .. } = self;
        TerminatedBody { body, termination, side, _held: held }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin, H: Unpin> Body for TerminatedBody<B, H> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body, termination, side, .. } = &mut *self;
        let Some(at) = termination else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        at.poll(cx).map(|status| {
            *termination = None;
            Some(match side {
                Side::Request => Err(status.into()),
                Side::Answer => Ok(Frame::trailers(trailers(&status))),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        // An answer without a body has its status in its headers, and must end with them.
        self.termination.is_none() || self.body.is_end_stream()
    }
}

/// Returns the trailers of an answer with this status.
pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // It fails only for a text that no header can hold; ours are constant.
    let _ = status.add_header(&mut trailers);
    trailers
}
