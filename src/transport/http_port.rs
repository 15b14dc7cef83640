//! The HTTP port.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{Router, body::Body, response::IntoResponse};
use hyper::{
    Request, Response, StatusCode, Version,
    body::{Body as _, Bytes, Frame, Incoming, SizeHint},
    header::{CONNECTION, EXPECT, HeaderValue},
};
use metrics::Counter;
use parking_lot::Mutex;
use tower::{BoxError, Service as _};
use weir_server::{AnswerBytes, Connected, metrics::ListenerMetrics};

use super::{
    calls::Call,
    guard::Routes,
    http::{
        Peer,
        body::{self, TooLarge},
        problem::Problem,
    },
    incomplete_calls::{ConnectionCalls, Expected, IncompleteCalls, RequestBody},
    routes::{self, Target},
    status::Rejected,
};
use crate::auth::Access;

/// The HTTP port: its routes, and the bounds of request bodies.
pub struct HttpPort {
    router: Router,
    incomplete_calls: Arc<ConnectionCalls>,
    /// Calls that are rejected unread, which take no capacity of others.
    rejected: Arc<ConnectionCalls>,
    too_large: Counter,
}

impl HttpPort {
    /// Returns the port with these routes, whose requests have bodies of at most `max_body_bytes`.
    pub fn new(router: Router, max_body_bytes: usize, metrics: &ListenerMetrics, connected: Connected) -> Self {
        let [incomplete_calls, rejected] = [max_body_bytes, 0]
            .map(|max_bytes| IncompleteCalls::new(body::TIMEOUT, max_bytes, metrics).of(connected.clone()));
        Self { router, incomplete_calls, rejected, too_large: metrics.too_large.clone() }
    }
}

impl Routes for HttpPort {
    type Body = Body;

    fn on(&self, connected: &Connected) -> Self {
        let [incomplete_calls, rejected] =
            [&self.incomplete_calls, &self.rejected].map(|calls| calls.port().of(connected.clone()));
        Self { router: self.router.clone(), incomplete_calls, rejected, too_large: self.too_large.clone() }
    }

    fn target(request: &Request<Incoming>) -> Target {
        routes::http(request.method(), request.uri().path(), !request.body().is_end_stream())
    }

    async fn serve(&self, mut request: Request<Incoming>, call: Option<Call>) -> Response<Body> {
        if call.is_some_and(|call| matches!(call.access(), Access::Named(_))) {
            request.extensions_mut().insert(Peer(self.incomplete_calls.connected().peer));
        }
        let (rest, is_http1) = (Rest::of(&request), is_http1(&request));
        let (head, body) = self.incomplete_calls.waiting(request, Expected::Message).into_parts();
        let lent = Arc::new(Mutex::new(Lent { body, rest }));
        let request = Request::from_parts(head, Body::new(LentBody(Arc::clone(&lent))));
        let Ok(mut response) = self.router.clone().call(request).await;
        let is_marked = response.extensions().get::<TooLarge>().is_some();
        if is_marked || response.status() == StatusCode::PAYLOAD_TOO_LARGE {
            self.too_large.increment(1);
        }
        let has_ended = match Arc::into_inner(lent).map(Mutex::into_inner) {
            Some(Lent { body, rest: Rest::Coming }) => body::drain(body.discarded()).await,
            lent => lent.is_none_or(|lent| lent.rest == Rest::None),
        };
        if is_http1 && !has_ended {
            announce_close(&mut response);
        }
        let bytes = AnswerBytes(response.body().size_hint().lower() as usize);
        response.extensions_mut().get_or_insert_with(|| bytes);
        response
    }

    async fn discard(&self, request: Request<Incoming>, rejected: Rejected) -> Response<Body> {
        let is_http1 = is_http1(&request);
        let has_ended = match Rest::of(&request) {
            Rest::Coming => body::drain(self.rejected.body(request.into_body(), Expected::Discarded)).await,
            rest => rest == Rest::None,
        };
        let mut response = Self::reject(rejected);
        if is_http1 && !has_ended {
            announce_close(&mut response);
        }
        response
    }

    fn reject(rejected: Rejected) -> Response<Body> {
        Problem::from(rejected).into_response()
    }
}

/// Announces that the connection closes: hyper cannot find the next request after one whose body has not ended.
fn announce_close(response: &mut Response<Body>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

fn is_http1<B>(request: &Request<B>) -> bool {
    request.version() < Version::HTTP_2
}

/// The part of a request's body that has not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// None: the body has ended.
    None,
    /// The client sends it without being asked, or was asked for it.
    Coming,
    /// The client sends it only once it is asked to, which polling the body does.
    AskedFor,
    /// The body has failed, so that its end is unknown.
    Lost,
}

impl Rest {
    /// Returns the rest of a body before it is read.
    fn of(request: &Request<Incoming>) -> Self {
        match request.body().is_end_stream() {
            true => Self::None,
            false if is_http1(request) && request.headers().contains_key(EXPECT) => Self::AskedFor,
            false => Self::Coming,
        }
    }
}

/// A body that the router reads as a [`LentBody`], perhaps not to its end.
struct Lent {
    body: RequestBody<Incoming>,
    rest: Rest,
}

struct LentBody(Arc<Mutex<Lent>>);

impl hyper::body::Body for LentBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut lent = self.0.lock();
        let polled = Pin::new(&mut lent.body).poll_frame(cx);
        lent.rest = match polled {
            Poll::Ready(None) => Rest::None,
            Poll::Ready(Some(Err(_))) => Rest::Lost,
            _ => Rest::Coming,
        };
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.size_hint()
    }
}
