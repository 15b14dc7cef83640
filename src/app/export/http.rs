//! OTLP over HTTP: each batch is a request on a separate connection, as there is about one a second.

use std::{
    fmt,
    time::{Duration, Instant},
};

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use hyper::{
    Request, Response, Uri,
    client::conn::http1,
    header::{CONNECTION, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::{runtime::Handle, time};
use tracing::warn;
use weir_server::dial::Destination;
use weir_telemetry::{Causes, LogLimit};

use super::dial;
use crate::telemetry::TracingSettings;

/// Maximum size of a collector's response, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Minimum interval between two log lines about requests that failed.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Default path of the endpoint.
const PATH: &str = "/v1/traces";

/// Sends batches, on the runtime in which it was created.
pub(super) struct Sender {
    collector: Destination,
    timeout: Duration,
    runtime: Handle,
    warnings: LogLimit,
}

impl Sender {
    /// Creates a sender from these settings. Must be called inside a runtime.
    ///
    /// # Errors
    /// As [`dial::destination`].
    pub(super) fn new(settings: &TracingSettings) -> Result<Self, String> {
        let collector = dial::destination(settings, "http/1.1")?;
        let warnings = LogLimit::every(LOG_INTERVAL);
        Ok(Self { collector, timeout: settings.timeout.duration(), runtime: Handle::current(), warnings })
    }
}

/// Returns the URL that batches are sent to.
pub(super) fn url(settings: &TracingSettings) -> String {
    let endpoint = settings.otlp_endpoint.as_str();
    let has_path = endpoint.parse::<Uri>().is_ok_and(|uri| uri.path() != "/");
    if has_path { endpoint.to_owned() } else { format!("{}{PATH}", endpoint.trim_end_matches('/')) }
}

impl fmt::Debug for Sender {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Sender").finish_non_exhaustive()
    }
}

#[tonic::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (collector, timeout) = (self.collector.clone(), self.timeout);
        // The exporter's thread has no runtime.
        let sent = self.runtime.spawn(async move { time::timeout(timeout, send(collector, request)).await? }).await;
        let sent = sent.unwrap_or_else(|error| Err(error.into()));
        if let Err(error) = &sent
            && self.warnings.allows(Instant::now())
        {
            // The SDK's own error is "network error", regardless of the cause.
            warn!(error = %Causes(&**error), "a request to the collector failed");
        }
        sent
    }
}

async fn send(collector: Destination, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or(PATH, |path| path.as_str()).to_owned();
    head.uri = path.parse()?;
    head.headers.insert(HOST, HeaderValue::from_str(collector.authority())?);
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(collector.connect().await?)).await?;
    let answer = async {
        let (head, body) = sender.send_request(Request::from_parts(head, Body::from(body))).await?.into_parts();
        let body = match to_bytes(Body::new(body), MAX_ANSWER_BYTES).await {
            // The batch is accepted; after an error the SDK would send it again.
            Err(_) if head.status.is_success() => Bytes::new(),
            body => body?,
        };
        Ok(Response::from_parts(head, body))
    };
    tokio::pin!(connection, answer);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection has ended; the data already read is still delivered.
        _ = &mut connection => answer.await,
    }
}
