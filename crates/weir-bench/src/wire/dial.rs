//! Connections that speak HTTP/2, and the heads of what is called by them.

use std::{fmt, time::Duration};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use hyper::{
    HeaderMap, Method, Request, Uri, Version,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, TE},
};
use tokio::time::timeout;

use weir_server::dial::{Destination, Transport};

/// What the service may send before it hears that it was read: of one call, and of a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Room for the frames of answers that were received and not yet read: answers are small, and there are many.
const FRAME_BUDGET: usize = 64 << 20;
/// Calls at once before the service has said how many it takes.
const FIRST_STREAMS: usize = 100;

/// A service to be asked.
pub struct Target {
    destination: Destination,
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

/// An open connection; it works as long as this is polled.
pub type Connection = h2::client::Connection<Box<dyn Transport>, Bytes>;
/// What calls are sent by.
pub type Sender = SendRequest<Bytes>;

impl Target {
    /// This service, which is told who calls and has so long to accept a connection or to answer.
    pub fn new(destination: Destination, authorization: Option<HeaderValue>, timeout: Duration) -> Self {
        Self { destination, authorization, timeout }
    }

    /// How long an answer may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A new connection.
    ///
    /// # Errors
    /// A sentence, when the service cannot be reached in time.
    pub async fn dial(&self) -> Result<(Sender, Connection), String> {
        let dialed = timeout(self.timeout, self.destination.connect()).await;
        let transport =
            dialed.map_err(|_| "it does not answer".to_owned()).and_then(|it| it.map_err(|e| e.to_string()));
        let transport = transport.map_err(|cause| format!("cannot reach a service at {self}: {cause}"))?;
        let handshake = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .data_frame_budget(FRAME_BUDGET)
            .initial_max_send_streams(FIRST_STREAMS)
            .handshake(transport);
        handshake.await.map_err(|error| format!("cannot reach a service at {self}: {error}"))
    }

    /// The head of every call of a method.
    ///
    /// # Errors
    /// When the address makes no URI.
    pub fn head(&self, method: &str) -> Result<Head, hyper::http::Error> {
        let (scheme, authority) = (self.destination.scheme(), self.destination.authority());
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(method).build()?;
        Ok(Head(uri, self.authorization.clone()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.destination.fmt(f)
    }
}

/// What a call begins with.
#[derive(Clone, Debug)]
pub struct Head(Uri, Option<HeaderValue>);

impl Head {
    /// The head of one call.
    pub fn request(&self) -> Request<()> {
        const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
        const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.0.clone();
        *request.headers_mut() = HeaderMap::with_capacity(3);
        request.headers_mut().insert::<HeaderName>(TE, TRAILERS);
        request.headers_mut().insert(CONTENT_TYPE, GRPC);
        if let Some(authorization) = &self.1 {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        request
    }
}
