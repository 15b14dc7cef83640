//! Translates the variables of tracing: envoyproxy/ratelimit's, and OpenTelemetry's that its exporters read.

use weir_core::domain::Micros;

use super::{
    environment::{Environment, from},
    times,
    translation::Translation,
};
use crate::telemetry::TracingSettings;

const SWITCH: &str = "TRACING_ENABLED";
const PROTOCOL: &str = "TRACING_EXPORTER_PROTOCOL";
const NAMES: [&str; 3] = ["TRACING_SERVICE_NAME", "TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID"];
const RATE: &str = "TRACING_SAMPLING_RATE";
/// Variables for traces alone take precedence over shared ones.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const CERTIFICATES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];

/// Translates the settings of tracing, if it is enabled.
///
/// # Errors
/// The name of a variable whose value envoyproxy/ratelimit would reject.
pub(super) fn collector(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    if !environment.is_on(SWITCH)? {
        return Ok(());
    }
    let is_http = match environment.text(PROTOCOL) {
        None | Some("http") => true,
        Some("grpc") => false,
        Some(_) => return Err(format!("{PROTOCOL} is neither http nor grpc")),
    };
    let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, environment.text(name)?)));
    match first(ENDPOINTS) {
        Some((name, endpoint)) => {
            let endpoint = url(&translation.without_login(name, endpoint), is_http && name == ENDPOINTS[1]);
            let is_encrypted = endpoint.starts_with("https://");
            translation.set("tracing.otlp_endpoint", endpoint, from(environment, &[SWITCH, name]));
            if is_http {
                translation.set("tracing.protocol", "http", format!("from {PROTOCOL}, where it is the default"));
            }
            if let Some((name, path)) = first(CERTIFICATES).filter(|_| is_encrypted) {
                translation.set("tracing.ca", path, format!("from {name}"));
            }
        }
        None => {
            let place = "where the collector takes OTLP, as http://otel-collector:4317";
            translation.show("tracing.otlp_endpoint", format!("{SWITCH}: {place}."));
            translation.advise(format!("{SWITCH}: set tracing.otlp_endpoint, {place}"));
        }
    }
    if let Some((name, text)) = first(TIMEOUTS) {
        let millis: Micros = text.parse().map_err(|_| format!("{name} is not a number of milliseconds"))?;
        let given = millis.saturating_mul(1_000);
        times::set(translation, "tracing.timeout", name, given, times::within(given, &TracingSettings::TIMEOUT));
    }
    translation.copy(environment, &NAMES);
    if let Some(rate) = environment.text(RATE) {
        if !rate.parse().is_ok_and(|rate: f64| (0.0..=1.0).contains(&rate)) {
            return Err(format!("{RATE} is not a number from 0 to 1"));
        }
        translation.set("tracing.sample_ratio", rate, from(environment, &[RATE]));
    }
    Ok(())
}

/// Completes an endpoint with scheme and port. `/v1/traces` is appended to the path of an endpoint that all signals
/// share, if it has a path.
fn url(endpoint: &str, is_shared: bool) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_end_matches('/');
    let host = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
    let port = match (host.contains(':'), scheme) {
        (true, _) => "",
        (false, "https") => ":443",
        (false, _) => ":80",
    };
    let separator = if path.is_empty() { "" } else { "/" };
    let traces = if is_shared && !path.is_empty() { "/v1/traces" } else { "" };
    format!("{scheme}://{authority}{port}{separator}{path}{traces}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_gets_its_default_scheme_and_port() {
        for (endpoint, is_shared, expected) in [
            ("http://otel:4318", true, "http://otel:4318"),
            ("otel:4317", false, "http://otel:4317"),
            ("https://otel/", true, "https://otel:443"),
            ("http://[::1]", true, "http://[::1]:80"),
            ("http://[::1]:1/", false, "http://[::1]:1"),
            ("http://otel:4318/otlp/", true, "http://otel:4318/otlp/v1/traces"),
            ("http://otel:4318/v1/traces", false, "http://otel:4318/v1/traces"),
        ] {
            assert_eq!(url(endpoint, is_shared), expected, "{endpoint}");
        }
    }
}
