//! Ends the streams of services that know nothing of the drain, such as health watches and reflection, when it begins.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::{
    HeaderMap, Request, Response,
    body::{Body as HttpBody, Bytes, Frame},
    header::HeaderValue,
};
use tonic::{Code, Status, body::Body, server::NamedService};
use tower::Service;

use super::{drain::Drain, status::shutting_down};

/// A service whose answers end with UNAVAILABLE when the drain begins.
#[derive(Clone)]
pub struct Ending<S> {
    service: S,
    drain: Drain,
}

impl<S> Ending<S> {
    /// Ends what `service` still has to say when `drain` begins.
    pub fn new(service: S, drain: Drain) -> Self {
        Self { service, drain }
    }
}

impl<S: NamedService> NamedService for Ending<S> {
    const NAME: &'static str = S::NAME;
}

type Answered = Pin<Box<dyn Future<Output = Result<Response<EndingBody>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for Ending<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<EndingBody>;
    type Error = Infallible;
    type Future = Answered;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Answered {
        // The request ends too: a service may read it on a task of its own, which would hold the connection.
        let request = request.map(|body| Body::new(EndingBody::new(body, &self.drain, None)));
        let (answer, drain) = (self.service.call(request), self.drain.clone());
        Box::pin(async move { Ok(answer.await?.map(|body| EndingBody::new(body, &drain, Some(unavailable())))) })
    }
}

/// A body that goes on until its end or the drain.
pub struct EndingBody {
    body: Body,
    begun: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
    /// What is said last when the drain ends it.
    trailers: Option<HeaderMap>,
}

impl EndingBody {
    fn new(body: Body, drain: &Drain, trailers: Option<HeaderMap>) -> Self {
        let drain = drain.clone();
        Self { body, begun: Box::pin(async move { drain.begun().await }), ended: false, trailers }
    }
}

impl HttpBody for EndingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending if self.begun.as_mut().poll(cx).is_ready() => {
                self.ended = true;
                Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            frame => frame,
        }
    }
}

fn unavailable() -> HeaderMap {
    let status = shutting_down();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(Code::Unavailable as i32));
    if let Ok(message) = HeaderValue::from_str(status.message()) {
        trailers.insert("grpc-message", message);
    }
    trailers
}
