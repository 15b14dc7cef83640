//! Translates the variables of the xDS client.

use super::{
    environment::{Environment, from},
    times,
    translation::Translation,
};
use crate::xds::{SCHEME, XdsSettings};

/// Translates the control plane that `CONFIG_TYPE=GRPC_XDS_SOTW` takes the policy from.
pub(super) fn control_plane(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const URL: &str = "CONFIG_GRPC_XDS_SERVER_URL";
    let server = environment.text(URL).unwrap_or("localhost:18000");
    let server = server.strip_prefix("dns:///").unwrap_or(server);
    let server = translation.without_login(URL, server);
    translation.set("limits", format!("{SCHEME}{server}"), from(environment, &["CONFIG_TYPE", URL]));
    translation.copy(environment, &["CONFIG_GRPC_XDS_NODE_ID", "CONFIG_GRPC_XDS_NODE_METADATA"]);
    const HEADERS: &str = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";
    if let Some(headers) = environment.text(HEADERS) {
        translation.show("xds.headers", format!("{HEADERS} is not printed: set WEIR_XDS__HEADERS to it."));
        translation.hide("xds.headers", headers, format!("{HEADERS}: set WEIR_XDS__HEADERS to its value"));
    }
    tls(environment, translation)?;
    pauses(environment, translation)?;
    start(environment, translation)
}

fn tls(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const SWITCH: &str = "CONFIG_GRPC_XDS_SERVER_USE_TLS";
    if !environment.is_on(SWITCH)? {
        return Ok(());
    }
    translation.set("xds.tls.enabled", "true", from(environment, &[SWITCH]));
    translation.copy(
        environment,
        &[
            "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
            "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
            "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
        ],
    );
    Ok(())
}

fn pauses(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const INITIAL: &str = "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL";
    const MAX: &str = "XDS_CLIENT_BACKOFF_MAX_INTERVAL";
    let (initial, max) = (times::given(environment, INITIAL)?, times::given(environment, MAX)?);
    let within = |delay| times::within(delay, &XdsSettings::BACKOFF);
    if let Some(given) = max {
        times::set(translation, "xds.backoff.max", MAX, given, within(given));
    }
    let usual = XdsSettings::default().backoff;
    let longest = max.map_or(usual.max.0, within);
    if let Some(given) = initial {
        times::set(translation, "xds.backoff.initial", INITIAL, given, within(given).min(longest));
    } else if let Some(max) = max.filter(|_| longest < usual.initial.0) {
        times::set(translation, "xds.backoff.initial", MAX, max, longest);
    }
    const BYTES: &str = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";
    if let Some(text) = environment.text(BYTES) {
        let bytes: usize = text.parse().map_err(|_| format!("{BYTES} is not a number of bytes"))?;
        // In envoyproxy/ratelimit too, 0 means the default.
        if bytes > 0 {
            let kept = bytes.clamp(*XdsSettings::MESSAGE_BYTES.start(), *XdsSettings::MESSAGE_BYTES.end());
            let bounded = if kept == bytes { "" } else { ", within the bounds here" };
            translation.set("xds.max_message_bytes", kept.to_string(), format!("from {BYTES}{bounded}"));
        }
    }
    Ok(())
}

fn start(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const FORCE: &str = "FORCE_START_WITHOUT_INITIAL_CONFIG";
    const HEALTHY: &str = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED";
    match (environment.is_on(FORCE)?, environment.is_on(HEALTHY)?) {
        (true, true) => translation.set("xds.start", "not_ready", from(environment, &[FORCE, HEALTHY])),
        (true, false) => translation.set("xds.start", "ready", from(environment, &[FORCE])),
        // Both services then wait with closed ports.
        (false, _) => {}
    }
    Ok(())
}
