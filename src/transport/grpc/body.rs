//! What a call is answered with: the frames of its body, and how it went.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use hyper::{
    HeaderMap, Response,
    body::{Body, Frame},
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use tonic::{Code, Status};

use crate::transport::watch::tell_id;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const OK: HeaderValue = HeaderValue::from_static("0");

/// The body of an answer.
#[derive(Default)]
pub enum CallBody {
    /// One message, with what stands before it; then that all went well.
    Message(Bytes),
    /// That all went well.
    Trailers,
    /// Nothing more.
    #[default]
    End,
    /// What somebody else has to say.
    Other(axum::body::Body),
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let next = match &mut *self {
            Self::Other(body) => return Pin::new(body).poll_frame(cx),
            Self::Message(message) => (Frame::data(std::mem::take(message)), Self::Trailers),
            Self::Trailers => (Frame::trailers(trailers()), Self::End),
            Self::End => return Poll::Ready(None),
        };
        *self = next.1;
        Poll::Ready(Some(Ok(next.0)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::End => true,
            Self::Other(body) => body.is_end_stream(),
            Self::Message(_) | Self::Trailers => false,
        }
    }
}

/// The answer to a call that has one message.
pub fn unary(answer: Result<Bytes, Status>) -> Response<CallBody> {
    match answer {
        Ok(message) => respond(CallBody::Message(message)),
        Err(status) => status.into_http(),
    }
}

/// The answer to a call that has many. `fill` appends some to what is there, each with what stands before it, and says
/// `None`; or how the call ended. One that fails bears the `id` that its caller gave it.
pub fn many<F>(id: Option<HeaderValue>, fill: F) -> Response<CallBody>
where
    F: FnMut(&mut Context<'_>, &mut BytesMut) -> Poll<Option<Status>> + Send + Unpin + 'static,
{
    respond(CallBody::Other(axum::body::Body::new(Answers { fill, id, out: BytesMut::new(), end: End::NotYet })))
}

fn respond(body: CallBody) -> Response<CallBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(STATUS, OK);
    trailers
}

/// Bytes of answers that are sent together at most, where the next ones are there already: what a frame of HTTP/2 holds.
const MOST_AT_ONCE: usize = 16 << 10;

/// The answers of a call that has many.
struct Answers<F> {
    fill: F,
    /// What its caller calls it.
    id: Option<HeaderValue>,
    out: BytesMut,
    end: End,
}

/// How far the end of a call is.
enum End {
    NotYet,
    /// To be told.
    Due(Status),
    Told,
}

impl<F> Body for Answers<F>
where
    F: FnMut(&mut Context<'_>, &mut BytesMut) -> Poll<Option<Status>> + Unpin,
{
    type Data = Bytes;
    type Error = Infallible;

    /// As many answers as are there, then how the call ended.
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { fill, id, out, end } = &mut *self;
        while matches!(end, End::NotYet) && out.len() < MOST_AT_ONCE {
            match fill(cx, out) {
                Poll::Ready(None) => {}
                Poll::Ready(Some(status)) => *end = End::Due(status),
                Poll::Pending if out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if !out.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(out.split().freeze()))));
        }
        let End::Due(status) = std::mem::replace(end, End::Told) else { return Poll::Ready(None) };
        let mut trailers = HeaderMap::new();
        // It fails for a text that no header can hold, and ours are fixed.
        let _ = status.add_header(&mut trailers);
        if status.code() != Code::Ok {
            tell_id(id.take(), &mut trailers);
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}
