//! Connections to the collector.

use std::{io, path::Path, sync::Arc, time::Duration};

use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use weir_settings::tls::{Paths, server_name};

use crate::telemetry::TracingSettings;

/// Interval of the HTTP/2 pings while calls are in flight, and timeout of a ping. Without them, batch after batch would
/// wait for a collector whose machine has gone, until the kernel gives up.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

/// A connection to the collector.
pub(super) type Connection = TokioIo<Box<dyn Stream>>;

/// A stream of bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to the collector, with TLS if its endpoint is `https`.
#[derive(Clone)]
pub(super) struct Dialer {
    uri: Uri,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Dialer {
    /// Creates a dialer from these settings, for this ALPN protocol.
    ///
    /// # Errors
    /// A message that names the setting or the file.
    pub(super) fn new(settings: &TracingSettings, alpn: &str) -> Result<Self, String> {
        let uri: Uri = settings.otlp_endpoint.parse().map_err(|error| format!("tracing.otlp_endpoint: {error}"))?;
        if uri.scheme_str() != Some("https") {
            return Ok(Self { uri, tls: None });
        }
        let host = uri.host().unwrap_or_default();
        let name = server_name(host.trim_start_matches('[').trim_end_matches(']'))?;
        let none = Path::new("");
        let paths = Paths { ca: &settings.ca, cert: none, key: none };
        let mut config =
            paths.read().and_then(|texts| paths.config(&texts)).map_err(|why| format!("tracing.ca: {why}"))?;
        config.alpn_protocols = vec![alpn.into()];
        Ok(Self { uri, tls: Some((TlsConnector::from(Arc::new(config)), name)) })
    }

    /// The collector's host and port.
    pub(super) fn authority(&self) -> &str {
        self.uri.authority().map(hyper::http::uri::Authority::as_str).unwrap_or_default()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Errors of the network and of TLS.
    pub(super) async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.authority()).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some((connector, name)) => Box::new(connector.connect(name.clone(), stream).await?),
            None => Box::new(stream),
        };
        Ok(TokioIo::new(stream))
    }
}

/// Returns a channel that connects on first use and reconnects when necessary. `timeout` bounds connecting, and each
/// call.
///
/// # Errors
/// As [`Dialer::new`].
pub(super) fn channel(settings: &TracingSettings, timeout: Duration) -> Result<Channel, String> {
    let dialer = Dialer::new(settings, "h2")?;
    let wrong = |error: tonic::transport::Error| format!("tracing.otlp_endpoint: {error}");
    let endpoint = Endpoint::from_shared(settings.otlp_endpoint.clone()).map_err(wrong)?;
    let endpoint = endpoint.connect_timeout(timeout).timeout(timeout);
    let endpoint = endpoint.http2_keep_alive_interval(KEEPALIVE.0).keep_alive_timeout(KEEPALIVE.1);
    let connect = move |_: Uri| {
        let dialer = dialer.clone();
        async move { dialer.connect().await }
    };
    Ok(endpoint.connect_with_connector_lazy(service_fn(connect)))
}
