//! The settings of the whole service, put together from those of its parts: defaults, then a file, then the environment,
//! then flags.

mod bounds;
mod derived;
mod flags;
mod paths;
mod source;
mod store;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use figment::{Figment, Profile, error::Kind, providers::Serialized, value::Value};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use weir_core::algorithm::Bounds;
use weir_server::ShutdownSettings;
use weir_settings::{Problems, Time, suggest};
use weir_store::StoreSettings;

pub use self::{
    flags::Flags,
    paths::{PATHS, PathSetting},
    source::Places,
};
use crate::{
    auth::AuthSettings,
    telemetry::{MetricsSettings, TracingSettings, tracing::LogSettings},
    transport::{
        grpc::GrpcSettings, http::HttpSettings, idempotency::IdempotencySettings, rlqs::RlqsSettings,
        rls::EnvoySettings,
    },
    xds::XdsSettings,
};

/// All settings. `config/weir.yaml` explains each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The policy: a file, a directory, or a control plane ([`Settings::control_plane`]). Empty: none, which `allow_all` must
    /// permit.
    pub limits: PathBuf,
    /// Serves without a policy.
    pub allow_all: bool,
    /// How often the policy's files are looked at.
    pub limits_poll: Time,
    /// Whether each policy file must end with a line `...`.
    pub limits_require_end_marker: bool,
    /// Whether a directory of policy files may be empty.
    pub limits_allow_empty: bool,
    /// Whether requests may bring limits of their own, where their domain's policy does not say.
    pub limit_spec: LimitSpecRule,
    /// Who may reset keys.
    pub reset: ResetRule,
    /// Longest period of a limit.
    pub max_period: Time,
    /// How a control plane is called.
    pub xds: XdsSettings,
    /// Requests with ids of their own.
    pub idempotency: IdempotencySettings,
    /// The gRPC port.
    pub grpc: GrpcSettings,
    /// The HTTP port.
    pub http: HttpSettings,
    /// Authentication.
    pub auth: AuthSettings,
    /// How Envoy is answered.
    pub envoy: EnvoySettings,
    /// What is divided among Envoys.
    pub rlqs: RlqsSettings,
    /// Where counts live.
    pub store: StoreSettings,
    /// How much metrics may show.
    pub metrics: MetricsSettings,
    /// How the service ends.
    pub shutdown: ShutdownSettings,
    /// Whether requests have spans, and where those go.
    pub tracing: TracingSettings,
    /// How logs are written.
    pub log: LogSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: PathBuf::new(),
            allow_all: false,
            limits_poll: Time(500_000),
            limits_require_end_marker: false,
            limits_allow_empty: false,
            limit_spec: LimitSpecRule::default(),
            reset: ResetRule::default(),
            max_period: Time(Bounds::default().max_period),
            xds: XdsSettings::default(),
            idempotency: IdempotencySettings::default(),
            grpc: GrpcSettings::default(),
            http: HttpSettings::default(),
            auth: AuthSettings::default(),
            store: StoreSettings::default(),
            envoy: EnvoySettings::default(),
            rlqs: RlqsSettings::default(),
            metrics: MetricsSettings::default(),
            shutdown: ShutdownSettings::default(),
            tracing: TracingSettings::default(),
            log: LogSettings::default(),
        }
    }
}

/// What is done with the limits that a request brings along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSpecRule {
    /// They decide it.
    #[default]
    Allow,
    /// The request is rejected.
    Deny,
}

/// Who may reset keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetRule {
    /// With authentication enabled clients with the role `reset`, else every client.
    #[default]
    Allow,
    /// Authenticated clients with that role only.
    Authenticated,
}

/// Why the settings are invalid.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file is not readable, or has unknown keys.
    #[error("{0}")]
    File(Problems),
    /// Variables of the environment that no setting knows.
    #[error("{0}")]
    Environment(String),
    /// A value of the wrong kind, or out of bounds.
    #[error("{0}")]
    Value(String),
}

impl Settings {
    /// Reads the settings from a file, the environment and flags.
    ///
    /// # Errors
    /// [`ConfigError`] names the key, and the file with its line or the variable.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        Self::load_with_places(file, environment, flags).map(|(settings, _)| settings)
    }

    /// The same, with the places where they are set.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load_with_places(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<(Self, Places), ConfigError> {
        let defaults = Value::serialize(Self::default()).ok().and_then(Value::into_dict).unwrap_or_default();
        let mut places = Places::default();
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        if let Some(path) = file {
            figment = figment.merge(source::file(path, &defaults, &mut places).map_err(ConfigError::File)?);
        }
        let variables = source::environment(environment, &defaults, &mut places).map_err(ConfigError::Environment)?;
        figment = figment.merge(variables).merge(flags.values(&mut places));
        let settings: Result<Self, _> = figment.select(Profile::Default).extract();
        let settings = settings.map_err(|error| value_error(&error)).and_then(Self::checked);
        match settings {
            Ok(settings) => Ok((settings, places)),
            Err(message) => Err(ConfigError::Value(places.locate(&message))),
        }
    }

    /// The settings of these values, which override the environment's.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn of_values<'a>(
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        // As variables, which are texts for settings of all kinds too.
        let variable = |(key, value): (&str, &str)| (source::variable(key), value.to_owned());
        let mut all: BTreeMap<_, _> = environment.into_iter().collect();
        all.extend(values.into_iter().map(variable));
        Self::load(None, all, &Flags::default())
    }
}

/// A figment error in one line: the setting, and what is wrong with it.
fn value_error(error: &figment::Error) -> String {
    let key = error.path.join(".");
    match &error.kind {
        Kind::UnknownVariant(found, known) => suggest::not_one_of(&key, known, &format!("`{found}`")),
        // An entry of a list ends in its number there.
        kind => format!("{}: {kind}", key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::rls::Headers;

    pub fn load(yaml: &str, environment: &[(&str, &str)]) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.yaml");
        std::fs::write(&path, yaml).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = Settings::load(Some(&path), environment, &Flags::default());
        settings.map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
    }

    #[test]
    fn the_environment_overrides_the_file_which_overrides_defaults() {
        let settings =
            load("grpc: { listen: '127.0.0.1:1', workers: 3 }", &[("WEIR_GRPC__LISTEN", "unix:/run/w")]).unwrap();
        assert_eq!(settings.grpc.listen.to_string(), "unix:/run/w");
        assert_eq!((settings.grpc.workers, settings.http.listen.to_string().as_str()), (3, "127.0.0.1:8080"));
        assert_eq!(load("", &[]).unwrap(), Settings::default());
    }

    #[test]
    fn relative_paths_are_resolved_against_the_settings_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.yaml");
        for (limits, snapshot, expected) in [
            ("policies", "counts", (dir.path().join("policies"), dir.path().join("counts"))),
            ("/etc/weir", "/var/weir", (PathBuf::from("/etc/weir"), PathBuf::from("/var/weir"))),
            ("''", "''", (PathBuf::new(), PathBuf::new())),
        ] {
            std::fs::write(&path, format!("limits: {limits}\nstore: {{ snapshot: {{ path: {snapshot} }} }}")).unwrap();
            let settings = Settings::load(Some(&path), [], &Flags::default()).unwrap();
            assert_eq!((settings.limits, settings.store.snapshot.path), expected);
        }
        let variable = [("WEIR_STORE__SNAPSHOT__PATH".to_owned(), "counts".to_owned())];
        let settings = Settings::load(Some(&path), variable, &Flags::default()).unwrap();
        assert_eq!(settings.store.snapshot.path, PathBuf::from("counts"));
    }

    #[test]
    fn numeric_strings_stay_strings() {
        assert_eq!(load("", &[("WEIR_LIMITS", "0123")]).unwrap().limits, PathBuf::from("0123"));
        assert_eq!(load("", &[("WEIR_SHUTDOWN__TIMEOUT", "5")]).unwrap().shutdown.timeout, Time::seconds(5));
        assert_eq!(load("shutdown: { timeout: 5 }", &[]).unwrap().shutdown.timeout, Time::seconds(5));
    }

    #[test]
    fn variables_are_parsed_as_numbers_and_booleans() {
        let variables =
            [("WEIR_TRACING__SAMPLE_RATIO", "0.25"), ("WEIR_GRPC__WORKERS", "3"), ("WEIR_HTTP__UI__ENABLED", "yes")];
        let settings = load("", &variables).unwrap();
        assert_eq!((settings.tracing.sample_ratio, settings.grpc.workers, settings.http.ui.enabled), (0.25, 3, true));
        for (name, value) in
            [("WEIR_GRPC__WORKERS", "1.5"), ("WEIR_GRPC__WORKERS", "-1"), ("WEIR_HTTP__UI__ENABLED", "")]
        {
            assert!(load("", &[(name, value)]).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn envoy_headers_and_metadata_are_off_by_default() {
        let default = load("", &[]).unwrap().envoy;
        assert_eq!((default.headers, default.dynamic_metadata), (Headers::Off, false));
        for (headers, ratelimit, draft11) in [
            ("off", false, false),
            ("ratelimit", true, false),
            ("x-ratelimit-limit", true, false),
            ("draft11", false, true),
            ("both", true, true),
        ] {
            let set = load(&format!("envoy: {{ headers: {headers}, reset_header: X-Reset }}"), &[]).unwrap().envoy;
            assert_eq!((set.three().is_some(), set.headers.draft11()), (ratelimit, draft11), "{headers}");
            assert_eq!((set.limit_header.as_str(), set.reset_header.as_str()), ("RateLimit-Limit", "X-Reset"));
        }
        let variables = [("WEIR_ENVOY__SHADOW_MODE", "true"), ("WEIR_ENVOY__HEADERS", "ratelimit")];
        let set = load("", &variables).unwrap().envoy;
        assert!(set.shadow_mode && set.three().is_some() && !set.quota_mode && !set.merge_domains);
    }

    #[test]
    fn lists_are_accepted_as_yaml_or_comma_separated() {
        let names =
            |settings: Settings| settings.grpc.tls.client_names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let section =
            |names: &str| format!("grpc: {{ tls: {{ cert: c, key: k, client_ca: a, client_names: {names} }} }}");
        for text in ["[a, '*.b']", "'a, *.b'", "'a,,*.b,'"] {
            assert_eq!(names(load(&section(text), &[]).unwrap()), ["a", "*.b"], "{text}");
        }
        let variable = [("WEIR_GRPC__TLS__CLIENT_NAMES", "spiffe://a/*,7")];
        assert_eq!(names(load(&section("[a]"), &variable).unwrap()), ["spiffe://a/*", "7"]);
        assert!(names(load(&section("[]"), &[]).unwrap()).is_empty());
    }

    #[test]
    fn kubernetes_and_command_variables_are_not_settings() {
        let injected = [
            ("WEIR_PORT", "tcp://10.0.0.1:8081"),
            ("WEIR_SERVICE_HOST", "x"),
            ("WEIR_PORT_8081_TCP", "y"),
            ("WEIR_TOKEN", "z"),
            ("WEIR_ADDR", "https://weir:8081"),
            ("WEIR_TLS_CA", "ca.crt"),
            ("WEIR_TLS_SERVER_NAME", "weir"),
            ("WEIR_DEADLINE_MS", "50"),
        ];
        assert_eq!(load("", &injected).unwrap(), Settings::default());
    }

    #[test]
    fn errors_name_the_key_and_its_position() {
        for (yaml, environment, text) in [
            ("grcp: {}", &[][..], "weir.yaml:1:1: unknown key `grcp`; did you mean `grpc`?"),
            ("a: [", &[], "weir.yaml:2:1: not valid YAML"),
            ("grpc:\n  lisen: x", &[], "weir.yaml:2:3: unknown key `grpc.lisen`; did you mean `grpc.listen`?"),
            ("http: { ui: { enabled: true, max_hot_keys: 9 } }", &[], "http.ui.max_hot_keys is 10 to 10000"),
            (
                "http: { ui: { hosts: ['weir:8080'] } }",
                &[],
                "http.ui.hosts has `weir:8080`: a name is without scheme, port",
            ),
            ("grpc: { listen: nowhere }", &[], "`nowhere` is not an address"),
            ("", &[("WEIR_GRPC__WORKER", "1")], "WEIR_GRPC__WORKER"),
            ("", &[("WEIR_GRPC__WORKERS", "many")], "grpc.workers"),
            ("store: { url: 'rdis://:secret@h' }", &[], "unknown store `rdis`"),
            ("max_period: 400d", &[], "max_period is"),
            ("auth: { file: x, fil: y }", &[], "unknown key `auth.fil`; did you mean `auth.file`?"),
            ("grpc: { tls: { cert: a } }", &[], "grpc.tls.cert and key: either both are set or none"),
            ("http: { tls: { client_ca: a } }", &[], "http.tls.client_ca is set, but no certificate"),
            (
                "http: { tls: { cert: a, key: a, client_names: [b] } }",
                &[],
                "http.tls.client_names is set, but client_ca",
            ),
            ("http: { tls: { client_names: b: c } }", &[], "weir.yaml"),
            ("http: { tls: { client_names: { b: c } } }", &[], "http.tls.client_names is a list, not a map"),
            ("http: { tls: { client_names: [[b]] } }", &[], "http.tls.client_names has single values, not a list"),
            ("http: { tls: { client_names: ['*b'] } }", &[], "`*b` has its star elsewhere"),
            (
                "grpc: { listen: 'unix:/s', tls: { cert: a, key: a } }",
                &[],
                "grpc.tls.cert: a unix socket is not encrypted",
            ),
            ("grpc: { tls: { handshake_timeout: 99ms } }", &[], "grpc.tls.handshake_timeout is 100ms to 60s"),
            ("grpc: { tls: { max_handshakes: 0 } }", &[], "grpc.tls.max_handshakes is 1 to 100000"),
            (
                "http: { max_connections: 256, tls: { cert: a, key: a } }",
                &[],
                "max_handshakes is less than max_connections",
            ),
            ("grpc: { tls: { client_auth: maybe } }", &[], "grpc.tls.client_auth"),
            ("grpc: { max_connection_age: 99ms }", &[], "grpc.max_connection_age is 100ms to 366d, or 0 for none"),
            ("http: { max_connection_age_grace: 25h }", &[], "http.max_connection_age_grace is 0 to 1d"),
            ("http: { idle_timeout: 367d }", &[], "http.idle_timeout is 100ms to 366d"),
            ("grpc: { max_requests_per_second: 10000001 }", &[], "grpc.max_requests_per_second is 1 to 10000000"),
            ("", &[("WEIR_GRPC__MAX_CONCURRENT_REQUESTS", "some")], "grpc.max_concurrent_requests"),
            ("http: { max_concurrent_requests: 10000001 }", &[], "max_concurrent_requests is 0 to 10000000"),
            ("grpc: { message_timeout: 99ms }", &[], "grpc.message_timeout is 100ms to 1d"),
            ("envoy: { headers: on }", &[], "envoy.headers"),
            ("envoy: { reset_header: 'a b' }", &[], "envoy.reset_header: `a b` is not a header name"),
            ("envoy: { limit_header: '' }", &[], "envoy.limit_header: `` is not a header name"),
        ] {
            let error = load(yaml, environment).unwrap_err();
            assert!(error.contains(text), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
