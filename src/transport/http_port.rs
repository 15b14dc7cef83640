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
    header::EXPECT,
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
        let asks_first = asks_first(&request);
        let (head, body) = self.incomplete_calls.waiting(request, Expected::Message).into_parts();
        let lent = Arc::new(Mutex::new(Lent { body, must_drain: !asks_first }));
        let request = Request::from_parts(head, Body::new(LentBody(Arc::clone(&lent))));
        let Ok(mut response) = self.router.clone().call(request).await;
        let is_marked = response.extensions().get::<TooLarge>().is_some();
        if is_marked || response.status() == StatusCode::PAYLOAD_TOO_LARGE {
            self.too_large.increment(1);
        }
        if let Some(Lent { body, must_drain: true }) = Arc::into_inner(lent).map(Mutex::into_inner) {
            body::drain(body.discarded()).await;
        }
        let bytes = AnswerBytes(response.body().size_hint().lower() as usize);
        response.extensions_mut().get_or_insert_with(|| bytes);
        response
    }

    async fn discard(&self, request: Request<Incoming>) {
        if !asks_first(&request) {
            body::drain(self.rejected.body(request.into_body(), Expected::Discarded)).await;
        }
    }

    fn reject(rejected: Rejected) -> Response<Body> {
        Problem::from(rejected).into_response()
    }
}

/// Whether the client sends the body only once it is asked to, which polling the body does.
fn asks_first<B>(request: &Request<B>) -> bool {
    request.version() != Version::HTTP_2 && request.headers().contains_key(EXPECT)
}

/// A body that the router reads as a [`LentBody`], perhaps not to its end.
struct Lent {
    body: RequestBody<Incoming>,
    /// Whether the client was asked for it, and it has neither ended nor failed.
    must_drain: bool,
}

struct LentBody(Arc<Mutex<Lent>>);

impl hyper::body::Body for LentBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut lent = self.0.lock();
        let polled = Pin::new(&mut lent.body).poll_frame(cx);
        lent.must_drain = !matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.size_hint()
    }
}
