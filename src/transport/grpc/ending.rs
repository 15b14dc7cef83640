//! How a stream ends that its client would go on with: with its connection, with the service, with the credentials that it was
//! begun with, or with its deadline.

use std::{
    future::pending,
    pin::Pin,
    task::{Context, Poll},
};

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
pub struct Ending {
    close: CloseSignal,
    ended: Pin<Box<dyn Future<Output = Status> + Send>>,
}

impl Ending {
    /// At this signal; at the deadline and when the credentials are lost, where there are any.
    pub fn new(close: CloseSignal, deadline: Option<Deadline>, authorization: Option<StreamAuthorization>) -> Self {
        let said = close.clone().wait();
        let lost = async move {
            match authorization {
                Some(authorization) => Rejected::from(authorization.lost().await).into(),
                None => pending().await,
            }
        };
        let passed = async move {
            match deadline {
                Some(deadline) => deadline.passed().await,
                None => pending().await,
            }
        };
        let ended = Box::pin(async move {
            tokio::select! {
                biased;
                reason = said => closed(reason),
                status = lost => status,
                status = passed => status,
            }
        });
        Self { close, ended }
    }

    /// The end, where the connection brings it: at the price of a look, so that a client that never pauses is told too.
    #[inline]
    pub fn said(&self) -> Option<Status> {
        self.close.closed().map(closed)
    }

    /// Waits for the end. It must not be polled again after that.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        self.ended.as_mut().poll(cx)
    }
}

/// The body of a call that others serve, health or reflection: it goes on until its own end or the [`Ending`].
pub struct EndingBody<B> {
    body: B,
    ending: Option<Ending>,
    side: Side,
}

/// Whose body it is.
pub enum Side {
    /// The client's, which fails with the status. Reflection reads it on a task of its own, which would hold the connection.
    Request,
    /// The service's, which tells the status in its trailers.
    Answer,
}

impl<B> EndingBody<B> {
    /// Ends `body` at `ending`.
    pub fn new(body: B, ending: Ending, side: Side) -> Self {
        Self { body, ending: Some(ending), side }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for EndingBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body, ending, side } = &mut *self;
        let Some(at) = ending else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        at.poll(cx).map(|status| {
            *ending = None;
            Some(match side {
                Side::Request => Err(status.into()),
                Side::Answer => Ok(Frame::trailers(trailers(&status))),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        // An answer without a body has its status in its headers, and must end with them.
        self.ending.is_none() || self.body.is_end_stream()
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // It fails for a text that no header can hold, and ours are fixed.
    let _ = status.add_header(&mut trailers);
    trailers
}
