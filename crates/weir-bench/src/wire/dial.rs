//! HTTP/2 connections, and the headers of calls.

use std::{fmt, time::Duration};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use hyper::{
    HeaderMap, Method, Request, Uri, Version,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, TE},
};
use tokio::time::timeout;

use weir_server::dial::{Destination, Transport};

/// Flow-control windows of a stream and of a connection, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Maximum bytes of received frames that wait to be read; answers are small and many.
const FRAME_BUDGET: usize = 64 << 20;
/// Maximum number of concurrent streams before the server's SETTINGS arrive.
const FIRST_STREAMS: usize = 100;

/// The service under load.
pub(crate) struct Target {
    destination: Destination,
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

/// An open connection; it makes progress only while it is polled.
pub(crate) type Connection = h2::client::Connection<Box<dyn Transport>, Bytes>;
/// The sending half of a connection.
pub(crate) type Sender = SendRequest<Bytes>;

impl Target {
    /// Makes a target; `timeout` bounds each connect and each answer.
    pub(crate) fn new(destination: Destination, authorization: Option<HeaderValue>, timeout: Duration) -> Self {
        Self { destination, authorization, timeout }
    }

    /// Returns the timeout of a connect and of an answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// A sentence, if the service cannot be reached in time.
    pub(crate) async fn dial(&self) -> Result<(Sender, Connection), String> {
        let dialed = timeout(self.timeout, self.destination.connect()).await;
        let transport = dialed.map_err(|_| "no answer in time".to_owned()).and_then(|it| it.map_err(|e| e.to_string()));
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

    /// Returns the request headers of calls to `method`.
    ///
    /// # Errors
    /// The address is not a valid URI.
    pub(crate) fn head(&self, method: &str) -> Result<Head, hyper::http::Error> {
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

/// The request headers of a call.
#[derive(Clone, Debug)]
pub(crate) struct Head(Uri, Option<HeaderValue>);

impl Head {
    /// Makes the request of one call.
    pub(crate) fn request(&self) -> Request<()> {
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
