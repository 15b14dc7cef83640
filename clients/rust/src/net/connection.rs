use std::{
    pin::Pin,
    sync::{
        Arc,
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

/// Above any answer: a batch of 1,000 checks with 16 levels of the longest names.
const MAX_ANSWER_BYTES: usize = 32 << 20;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// An HTTP/2 connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    id: u64,
    location: Location,
    sender: SendRequest<Body>,
    origin: Uri,
    /// Over which checks of many callers go.
    pub(crate) stream: Arc<SharedStream>,
}

/// The connection failed under a call.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost")]
pub(crate) struct Lost {
    /// Nothing of the call was sent.
    pub(crate) unsent: bool,
    #[source]
    source: hyper::Error,
}

impl Connection {
    pub(super) fn new(location: Location, sender: SendRequest<Body>, origin: Uri) -> Self {
        Self { id: NEXT_ID.fetch_add(1, Relaxed), location, sender, origin, stream: Arc::default() }
    }

    /// Not that of any other connection.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// The same connection, without its stream.
    pub(crate) fn detached(mut self) -> Self {
        self.stream = Arc::default();
        self
    }

    /// It takes no more calls.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
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
        // Its queue has no bound of its own: callers are as many as their deadlines allow.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        const AGENT: HeaderValue = HeaderValue::from_static(concat!("weir-client-rust/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, AGENT);
        let answer = self.sender.try_send_request(request);
        Box::pin(async move {
            answer.await.map_err(|mut error| {
                let unsent = error.take_message().is_some();
                let mut status = Status::unavailable("the connection was lost");
                status.set_source(Arc::new(Lost { unsent, source: error.into_error() }));
                status
            })
        })
    }
}
