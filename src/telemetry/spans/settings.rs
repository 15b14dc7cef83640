//! The settings of tracing.

use std::{ops::RangeInclusive, path::PathBuf};

use hyper::Uri;
use serde::{Deserialize, Serialize};
use weir_core::domain::{Micros, time::SECOND};
use weir_settings::{Time, ensure, file::is_set};

/// Tracing, and the collector of the spans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracingSettings {
    /// The collector: `http://host:port` or `https://host:port`, with [`Protocol::Http`] also with a path. Empty:
    /// tracing is disabled.
    pub otlp_endpoint: String,
    /// The OTLP protocol of the collector.
    pub protocol: Protocol,
    /// The CA bundle that verifies a TLS collector; empty: the system's.
    pub ca: PathBuf,
    /// The sampling ratio of traces that start here, 0 to 1. A client's sampling decision takes precedence.
    pub sample_ratio: f64,
    /// `service.name` of the spans.
    pub service_name: String,
    /// `service.namespace` of the spans; empty: none.
    pub service_namespace: String,
    /// `service.instance.id` of the spans; empty: a random one at each start.
    pub service_instance_id: String,
    /// Timeout of a batch, connecting included.
    pub timeout: Time,
    /// Maximum number of spans that wait to be sent; further ones are dropped.
    pub max_queue: usize,
}

/// A protocol of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP, in binary.
    Http,
}

impl Default for TracingSettings {
    fn default() -> Self {
        Self {
            otlp_endpoint: String::new(),
            protocol: Protocol::Grpc,
            ca: PathBuf::new(),
            sample_ratio: 1.0,
            service_name: "weir".to_owned(),
            service_namespace: String::new(),
            service_instance_id: String::new(),
            timeout: Time::seconds(5),
            max_queue: 8_192,
        }
    }
}

impl TracingSettings {
    /// The bounds of `timeout`, in microseconds.
    pub const TIMEOUT: RangeInclusive<Micros> = SECOND / 10..=60 * SECOND;

    /// Whether a collector is configured.
    pub fn is_on(&self) -> bool {
        !self.otlp_endpoint.is_empty()
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// A message that names the setting.
    pub fn check(&self) -> Result<(), String> {
        ensure(
            !self.is_on() || is_endpoint(&self.otlp_endpoint, self.protocol),
            // Not printed: it may contain a password.
            "tracing.otlp_endpoint is http:// or https://host:port, without a user or a password, and without a path \
             unless tracing.protocol is http",
        )?;
        ensure(
            !is_set(&self.ca) || self.otlp_endpoint.starts_with("https://"),
            "tracing.ca is set, but tracing.otlp_endpoint is not https://",
        )?;
        ensure((0.0..=1.0).contains(&self.sample_ratio), "tracing.sample_ratio must be 0 to 1")?;
        ensure((1..=256).contains(&self.service_name.len()), "tracing.service_name must have 1 to 256 bytes")?;
        ensure(
            self.service_namespace.len().max(self.service_instance_id.len()) <= 256,
            "tracing.service_namespace and tracing.service_instance_id can have at most 256 bytes",
        )?;
        ensure(Self::TIMEOUT.contains(&self.timeout.0), "tracing.timeout must be 100ms to 60s")?;
        ensure((1..=1_000_000).contains(&self.max_queue), "tracing.max_queue must be 1 to 1000000")
    }
}

fn is_endpoint(text: &str, protocol: Protocol) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let plain =
        uri.authority().is_some_and(|authority| !authority.as_str().contains('@') && authority.port().is_some());
    let is_path = uri.path() == "/" || protocol == Protocol::Http;
    plain && matches!(uri.scheme_str(), Some("http" | "https")) && is_path && uri.query().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_rejected() {
        let default = TracingSettings::default;
        assert_eq!(default().check(), Ok(()));
        for endpoint in ["http://otel:4317", "http://[::1]:4317/", "https://otel:4317"] {
            assert_eq!(
                TracingSettings { otlp_endpoint: endpoint.to_owned(), ..default() }.check(),
                Ok(()),
                "{endpoint}"
            );
        }
        for endpoint in
            ["otel:4317", "ftp://otel:4317", "http://otel", "http://u:geheim@otel:1", "http://o:1/v1", "x y"]
        {
            let error = TracingSettings { otlp_endpoint: endpoint.to_owned(), ..default() }.check().unwrap_err();
            assert!(error.contains("tracing.otlp_endpoint is") && !error.contains("geheim"), "{error}");
        }
        let with_path =
            TracingSettings { otlp_endpoint: "http://o:1/v1".to_owned(), protocol: Protocol::Http, ..default() };
        assert_eq!(with_path.check(), Ok(()));
        for (settings, name) in [
            (TracingSettings { service_namespace: "x".repeat(257), ..default() }, "service_namespace"),
            (TracingSettings { ca: "ca.pem".into(), ..default() }, "ca"),
            (TracingSettings { sample_ratio: 1.1, ..default() }, "sample_ratio"),
            (TracingSettings { sample_ratio: f64::NAN, ..default() }, "sample_ratio"),
            (TracingSettings { service_name: String::new(), ..default() }, "service_name"),
            (TracingSettings { timeout: Time(99_999), ..default() }, "timeout"),
            (TracingSettings { max_queue: 0, ..default() }, "max_queue"),
        ] {
            assert!(settings.check().unwrap_err().starts_with(&format!("tracing.{name} ")), "{settings:?}");
        }
    }
}
