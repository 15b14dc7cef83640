//! Connections to the collector.

use std::{path::Path, time::Duration};

use hyper::Uri;
use tonic::transport::Channel;
use weir_server::dial::{Destination, HTTP_2, Hints, Trust};
use weir_settings::tls::{Paths, server_name};

use crate::{dial, telemetry::TracingSettings};

/// Interval of the HTTP/2 pings while calls are in flight, and timeout of a ping. Without them, batch after batch would
/// wait for a collector whose machine has gone, until the kernel gives up.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

const HINTS: Hints = Hints {
    requires_tls: |authority| {
        format!("set tracing.otlp_endpoint: https://{authority} (and tracing.ca for a CA of your own)")
    },
    without_tls: "set tracing.otlp_endpoint: http://…",
    ca: "tracing.ca",
    server_name: "tracing.otlp_endpoint",
};

/// Returns the collector as the destination of connections with this ALPN protocol, with TLS if its endpoint is `https`.
///
/// # Errors
/// A message that names the setting or the file.
pub(super) fn destination(settings: &TracingSettings, alpn: &'static str) -> Result<Destination, String> {
    let endpoint: Uri = settings.otlp_endpoint.parse().map_err(|error| format!("tracing.otlp_endpoint: {error}"))?;
    let (scheme, authority) = (endpoint.scheme_str(), endpoint.authority().map(|authority| authority.as_str()));
    let address = format!("{}://{}", scheme.unwrap_or_default(), authority.unwrap_or_default());
    let address = address.parse().map_err(|why| format!("tracing.otlp_endpoint: {why}"))?;
    let none = Path::new("");
    if let Some(host) = endpoint.host().filter(|_| scheme == Some("https")) {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        server_name(host).map_err(|why| format!("tracing.otlp_endpoint: {why}"))?;
    }
    let paths = Paths { ca: &settings.ca, cert: none, key: none };
    let trust = Trust { paths, server_name: "", alpn, hints: HINTS };
    let setting = if settings.ca.as_os_str().is_empty() { "otlp_endpoint" } else { "ca" };
    Destination::new(&address, trust).map_err(|why| format!("tracing.{setting}: {why}"))
}

/// Returns a channel that connects on first use and reconnects when necessary. `timeout` bounds connecting, and each
/// call.
///
/// # Errors
/// As [`destination`].
pub(super) fn channel(settings: &TracingSettings, timeout: Duration) -> Result<Channel, String> {
    let channel = dial::lazy_channel(&destination(settings, HTTP_2)?, |endpoint| {
        let endpoint = endpoint.connect_timeout(timeout).timeout(timeout);
        endpoint.http2_keep_alive_interval(KEEPALIVE.0).keep_alive_timeout(KEEPALIVE.1)
    });
    channel.map_err(|error| format!("tracing.otlp_endpoint: {error}"))
}
