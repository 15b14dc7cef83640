//! Ends the streams of services that know nothing of connections, such as health watches and reflection, with theirs.

use std::{
    convert::Infallible,
    future::{Future, pending},
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::{
    HeaderMap, Request, Response,
    body::{Body as HttpBody, Bytes, Frame},
};
use tonic::{Status, body::Body, server::NamedService};
use tower::Service;

use super::farewell::Farewell;

/// A service whose answers end with UNAVAILABLE at the [`Farewell`] that its requests bring with them.
#[derive(Clone)]
pub struct Ending<S> {
    service: S,
}

impl<S> Ending<S> {
    /// Ends what `service` still has to say then.
    pub fn new(service: S) -> Self {
        Self { service }
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
        let farewell = request.extensions().get::<Farewell>().cloned();
        // The request ends too: a service may read it on a task of its own, which would hold the connection.
        let request = request.map(|body| Body::new(EndingBody::new(body, farewell.clone(), false)));
        let answer = self.service.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| EndingBody::new(body, farewell, true))) })
    }
}

/// A body that goes on until its end or the farewell.
pub struct EndingBody {
    body: Body,
    farewell: Pin<Box<dyn Future<Output = Status> + Send>>,
    ended: bool,
    /// Whether it says last how the farewell ends it.
    tells: bool,
}

impl EndingBody {
    fn new(body: Body, farewell: Option<Farewell>, tells: bool) -> Self {
        let farewell = async move {
            match farewell {
                Some(farewell) => farewell.wait().await,
                None => pending().await,
            }
        };
        Self { body, farewell: Box::pin(farewell), ended: false, tells }
    }
}

impl HttpBody for EndingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let status = ready!(self.farewell.as_mut().poll(cx));
        self.ended = true;
        Poll::Ready(self.tells.then(|| Ok(Frame::trailers(trailers(&status)))))
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // It fails for a text that no header can hold, and ours are fixed.
    let _ = status.add_header(&mut trailers);
    trailers
}
