use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use http::{Request, Response, Uri, header::USER_AGENT};
use hyper::{body::Incoming, client::conn::http2::SendRequest, header::HeaderValue};
use tonic::{Status, body::Body};
use tower_service::Service;

use super::target::Location;
use crate::{coalesce::SharedStream, proto::rate_limiter_client::RateLimiterClient};

/// Larger than any answer: a batch of 1,000 checks with 16 levels of the longest names.
const MAX_ANSWER_BYTES: usize = 32 << 20;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// An HTTP/2 connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    id: u64,
    location: Location,
    sender: Sender,
    origin: Uri,
    /// The stream that coalesced checks of many callers share.
    pub(crate) stream: Arc<SharedStream>,
}

/// The error of a call whose connection failed.
#[derive(Debug, thiserror::Error)]
#[error("connection closed")]
pub(crate) struct Lost {
    /// Whether nothing of the call was sent.
    pub(crate) unsent: bool,
    source: Option<hyper::Error>,
}

/// The queue of the task that serves the connection; `None` once the task has ended.
///
/// A call may enter the queue just after the task has emptied it for the last time. hyper answers such calls when the
/// last sender is dropped, so a call must not keep a sender while it waits.
type Sender = Arc<Mutex<Option<SendRequest<Body>>>>;

fn lock(sender: &Sender) -> std::sync::MutexGuard<'_, Option<SendRequest<Body>>> {
    sender.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the sender when dropped, after the task that serves the connection.
pub(super) struct Closing(Sender);

impl Drop for Closing {
    fn drop(&mut self) {
        // Calls that are still in its queue are answered after the lock is released.
        let sender = lock(&self.0).take();
        drop(sender);
    }
}

impl Connection {
    pub(super) fn new(location: Location, sender: SendRequest<Body>, origin: Uri) -> (Self, Closing) {
        let sender = Arc::new(Mutex::new(Some(sender)));
        let closing = Closing(Arc::clone(&sender));
        (Self { id: NEXT_ID.fetch_add(1, Relaxed), location, sender, origin, stream: Arc::default() }, closing)
    }

    /// Returns the connection's unique ID.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the same connection, without its stream.
    pub(crate) fn detached(mut self) -> Self {
        self.stream = Arc::default();
        self
    }

    /// Whether the connection does not take new calls.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.sender).as_ref().is_none_or(SendRequest::is_closed)
    }

    pub(crate) fn client(self) -> RateLimiterClient<Self> {
        let origin = self.origin.clone();
        RateLimiterClient::with_origin(self, origin).max_decoding_message_size(MAX_ANSWER_BYTES)
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // The queue is unbounded: the callers' deadlines limit the number of waiting calls.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        const AGENT: HeaderValue = HeaderValue::from_static(concat!("weir-client-rust/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, AGENT);
        let answer = lock(&self.sender).as_mut().map(|sender| sender.try_send_request(request));
        Box::pin(async move {
            let lost = match answer {
                Some(answer) => match answer.await {
                    Ok(response) => return Ok(response),
                    Err(mut error) => Lost { unsent: error.take_message().is_some(), source: Some(error.into_error()) },
                },
                None => Lost { unsent: true, source: None },
            };
            let mut status = Status::unavailable("the connection was lost");
            status.set_source(Arc::new(lost));
            Err(status)
        })
    }
}
