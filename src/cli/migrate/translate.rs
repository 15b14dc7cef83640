//! Translates variables to settings. Redis, tracing and xDS have separate modules.

use std::path::Path;

use weir_core::domain::Micros;
use weir_server::Traffic;

use super::{
    environment::{Environment, from, switch},
    redis,
    table::{self, Equivalent, Variable},
    times, tracing,
    translation::Translation,
    xds,
};

/// Settings that envoyproxy/ratelimit has no variable for, with its behaviour and where that comes from.
pub(super) const DEFAULTS: [(&str, &str, &str); 4] = [
    ("limits_allow_empty", "true", "as envoyproxy/ratelimit does"),
    ("grpc.max_message_bytes", "4194304", "the bound of gRPC in Go"),
    ("reset", "authenticated", "envoyproxy/ratelimit has no resets"),
    ("admin", "authenticated", "envoyproxy/ratelimit has no calls of operators"),
];

/// Translates variables to settings.
///
/// # Errors
/// The name of a variable whose value envoyproxy/ratelimit would reject; never its value.
pub(super) fn translate(environment: &Environment) -> Result<Translation, String> {
    let mut translation = Translation::default();
    for (key, value, remark) in DEFAULTS {
        translation.set(key, value, remark);
    }
    limits(environment, &mut translation)?;
    listeners(environment, &mut translation)?;
    ages(environment, &mut translation)?;
    tls(environment, &mut translation)?;
    envoy(environment, &mut translation)?;
    metrics(environment, &mut translation)?;
    redis::store(environment, &mut translation)?;
    tracing::collector(environment, &mut translation)?;
    log(environment, &mut translation)?;
    rest(environment, &mut translation);
    Ok(translation)
}

fn limits(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const NAMES: [&str; 3] = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"];
    match environment.text("CONFIG_TYPE") {
        None | Some("FILE") => {}
        Some("GRPC_XDS_SOTW") => return xds::control_plane(environment, translation),
        Some(_) => return Err("CONFIG_TYPE is neither FILE nor GRPC_XDS_SOTW".to_owned()),
    }
    let parts = [
        environment.text(NAMES[0]).unwrap_or("/srv/runtime_data/current"),
        environment.text(NAMES[1]).unwrap_or_default(),
        environment.text(NAMES[2]).unwrap_or("config"),
    ];
    let mut path = parts[0].trim_end_matches('/').to_owned();
    for part in parts[1..].iter().map(|part| part.trim_matches('/')).filter(|part| !part.is_empty()) {
        path.push('/');
        path.push_str(part);
    }
    let remark = from(environment, &NAMES);
    translation.set("limits", path, format!("{remark}; its *.yaml and *.yml, none of deeper directories."));
    Ok(())
}

fn listeners(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    if let Some(path) = environment.text("GRPC_UDS") {
        translation.set("grpc.listen", format!("unix:{path}"), "from GRPC_UDS");
    } else {
        let names = ["GRPC_HOST", "GRPC_PORT"];
        translation.set("grpc.listen", address(environment, names, 8081)?, from(environment, &names));
    }
    let names = ["HOST", "PORT"];
    translation.set("http.listen", address(environment, names, 8080)?, from(environment, &names));
    Ok(())
}

fn ages(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const AGE: &str = "GRPC_MAX_CONNECTION_AGE";
    const GRACE: &str = "GRPC_MAX_CONNECTION_AGE_GRACE";
    // In envoyproxy/ratelimit 0 means forever.
    if let Some(age) = times::given(environment, AGE)? {
        let kept = if age == 0 { 0 } else { times::within(age, &Traffic::AGE) };
        times::set(translation, "grpc.max_connection_age", AGE, age, kept);
    }
    if let Some(grace) = times::given(environment, GRACE)? {
        let kept = times::within(if grace == 0 { Micros::MAX } else { grace }, &Traffic::GRACE);
        times::set(translation, "grpc.max_connection_age_grace", GRACE, grace, kept);
    }
    Ok(())
}

fn tls(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const SWITCH: &str = "GRPC_SERVER_USE_TLS";
    const CERT: &str = "GRPC_SERVER_TLS_CERT";
    const CLIENTS: &str = "GRPC_CLIENT_TLS_CACERT";
    if !environment.is_on(SWITCH)? {
        return Ok(());
    }
    if environment.text("GRPC_UDS").is_some() {
        translation
            .require(format!("{SWITCH}: a unix socket is not encrypted here; the rights of its directory guard it"));
        return Ok(());
    }
    let Some(cert) = environment.text(CERT) else {
        translation
            .require(format!("{SWITCH}: {CERT} is not set; name the files of a certificate in grpc.tls.cert and .key"));
        return Ok(());
    };
    translation.set("grpc.tls.cert", cert, from(environment, &[SWITCH, CERT]));
    translation.copy(environment, &["GRPC_SERVER_TLS_KEY"]);
    if environment.text(CLIENTS).is_some() {
        translation.copy(environment, &[CLIENTS, "GRPC_CLIENT_TLS_SAN"]);
        translation.advise(format!(
            "{CLIENTS}: clients with a certificate may check; for /metrics and resets say in auth.file who may. The port of \
             /json is not encrypted and takes no certificates: it needs a token of auth.file"
        ));
    }
    Ok(())
}

/// All addresses of the machine, of IPv6 and of IPv4.
const ALL_ADDRESSES: &str = "[::]";

/// Returns the host to listen on. In Go `0.0.0.0` means the addresses of IPv6 too.
fn all_addresses(host: &str) -> &str {
    if host == "0.0.0.0" { ALL_ADDRESSES } else { host }
}

fn address(environment: &Environment, [host, port]: [&str; 2], default: u16) -> Result<String, String> {
    let number = match environment.text(port) {
        None => default,
        Some(text) => text.parse().map_err(|_| format!("{port} is not a port number (0 to 65535)"))?,
    };
    let host = environment.text(host).map_or(ALL_ADDRESSES, all_addresses);
    let bare_v6 = host.contains(':') && !host.starts_with('[');
    Ok(if bare_v6 { format!("[{host}]:{number}") } else { format!("{host}:{number}") })
}

fn envoy(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const STOP: &str = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT";
    const HEADERS: &str = "LIMIT_RESPONSE_HEADERS_ENABLED";
    const SHADOW: &str = "SHADOW_MODE";
    if environment.is_on(HEADERS)? {
        translation.set("envoy.headers", "ratelimit", from(environment, &[HEADERS]));
    }
    translation.copy(environment, &["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"]);
    translation.switch(environment, &["RESPONSE_DYNAMIC_METADATA", SHADOW, "QUOTA_MODE", "MERGE_DOMAIN_CONFIG"])?;
    if environment.is_on(HEADERS)? && environment.is_on(SHADOW)? {
        translation.advise(format!(
            "{HEADERS}: with {SHADOW} beside a service that decides, responses have each header twice; turn it off (envoy.headers) \
             until the switch"
        ));
    }
    if environment.is_on(STOP)? {
        translation.set("envoy.charge", "over_limit_only", from(environment, &[STOP]));
    }
    Ok(())
}

fn metrics(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const SWITCH: &str = "USE_PROMETHEUS";
    const ADDRESS: &str = "PROMETHEUS_ADDR";
    if environment.is_on(SWITCH)? {
        let address = environment.text(ADDRESS).unwrap_or(":9090");
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let host = if host.is_empty() { ALL_ADDRESSES } else { all_addresses(host) };
        translation.set("metrics.listen", format!("{host}:{port}"), from(environment, &[SWITCH, ADDRESS]));
    }
    Ok(())
}

fn log(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    if let Some(format) = environment.text("LOG_FORMAT") {
        if !matches!(format, "text" | "json") {
            return Err("LOG_FORMAT is neither text nor json".to_owned());
        }
        translation.set("log.format", format, from(environment, &["LOG_FORMAT"]));
    }
    if let Some(level) = environment.text("LOG_LEVEL") {
        let level = match level.to_ascii_lowercase().as_str() {
            "panic" | "fatal" | "error" => "error",
            "warn" | "warning" => "warn",
            "info" => "info",
            "debug" => "debug",
            "trace" => "trace",
            _ => return Err("LOG_LEVEL is not a level of that service".to_owned()),
        };
        translation.set("log.level", level, from(environment, &["LOG_LEVEL"]));
    }
    Ok(())
}

/// Notes the variables that do not become settings.
fn rest(environment: &Environment, translation: &mut Translation) {
    for key in environment.further() {
        translation.require(format!("{key}: the variables that it names are not read; list them under `env`"));
    }
    for name in environment.names() {
        let Some(Variable { equivalent, note, .. }) = table::find(name) else {
            translation.unsupported.push(format!("{name}: not a variable of that service"));
            continue;
        };
        // A boolean variable that is off needs no equivalent.
        let off = environment.text(name).and_then(switch) == Some(false);
        match equivalent {
            Equivalent::Setting(key) if environment.is_external(name) => {
                translation
                    .require(format!("{name}: its value is defined elsewhere and not available here; set {key}"));
            }
            Equivalent::Setting(_) => {}
            Equivalent::Unsupported if off => {
                translation.not_needed.push(format!("{name}: off there, and without an equivalent here"))
            }
            Equivalent::Unsupported => translation.unsupported.push(format!("{name}: {note}")),
            Equivalent::NotNeeded => translation.not_needed.push(format!("{name}: {note}")),
        }
    }
    let relative = environment.text("RUNTIME_ROOT").is_some_and(|root| Path::new(root).is_relative());
    if relative {
        translation.advise("RUNTIME_ROOT: a relative path is meant from where the file with these settings stands");
    }
}
