//! The way to the collector.

use std::{io, path::Path, sync::Arc, time::Duration};

use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use weir_settings::tls::{Paths, server_name};

use crate::telemetry::TracingSettings;

/// How often a collector that is sent something is asked whether it is there, and how long it may take to say so. One whose machine
/// has gone would else be waited for, batch after batch, until the kernel gives up.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

/// A channel that connects when it is first used, and again when it must. What is asked by it may take so long.
///
/// # Errors
/// A sentence that names the setting or the file.
pub(super) fn channel(settings: &TracingSettings, timeout: Duration) -> Result<Channel, String> {
    let wrong = |error: tonic::transport::Error| format!("tracing.otlp_endpoint: {error}");
    let endpoint = Endpoint::from_shared(settings.otlp_endpoint.clone()).map_err(wrong)?;
    let endpoint = endpoint.connect_timeout(timeout).timeout(timeout);
    let endpoint = endpoint.http2_keep_alive_interval(KEEPALIVE.0).keep_alive_timeout(KEEPALIVE.1);
    let uri = endpoint.uri();
    if uri.scheme_str() != Some("https") {
        return Ok(endpoint.connect_lazy());
    }
    let host = uri.host().unwrap_or_default();
    let name = server_name(host.trim_start_matches('[').trim_end_matches(']'))?;
    let none = Path::new("");
    let paths = Paths { ca: &settings.ca, cert: none, key: none };
    let mut config = paths.read().and_then(|texts| paths.config(&texts)).map_err(|why| format!("tracing.ca: {why}"))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let connect = move |uri: Uri| {
        let (connector, name) = (connector.clone(), name.clone());
        async move { encrypted(&uri, &connector, name).await.map(TokioIo::new) }
    };
    Ok(endpoint.connect_with_connector_lazy(service_fn(connect)))
}

async fn encrypted(uri: &Uri, connector: &TlsConnector, name: ServerName<'static>) -> io::Result<TlsStream<TcpStream>> {
    let address = uri.authority().map(hyper::http::uri::Authority::as_str).unwrap_or_default();
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    connector.connect(name, stream).await
}
