//! The settings of the whole service, composed of its parts' settings: defaults, then a file, then the environment,
//! then flags.

mod bounds;
mod derived;
mod flags;
mod paths;
mod source;
pub mod store;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use figment::{Figment, Profile, error::Kind, providers::Serialized, value::Value};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use weir_core::algorithm::Bounds;
use weir_server::ShutdownSettings;
use weir_settings::{Time, suggest};
use weir_store::StoreSettings;

pub use self::{
    flags::Flags,
    paths::{PATHS, PathSetting},
    source::{FILE_VARIABLE, SettingOrigins, variable},
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
    /// Interval between polls of the policy's files.
    pub limits_poll: Time,
    /// Whether each policy file must end with a line `...`.
    pub limits_require_end_marker: bool,
    /// Whether a directory of policy files may be empty.
    pub limits_allow_empty: bool,
    /// Whether requests may bring their own limits, unless the policy of their domain says otherwise.
    pub limit_spec: LimitSpecRule,
    /// The clients that may reset keys.
    pub reset: ResetRule,
    /// The clients that may make operators' calls.
    pub admin: AdminRule,
    /// Maximum period of a limit.
    pub max_period: Time,
    /// The client of a control plane (xDS).
    pub xds: XdsSettings,
    /// Idempotency of requests with an id.
    pub idempotency: IdempotencySettings,
    /// The gRPC port.
    pub grpc: GrpcSettings,
    /// The HTTP port.
    pub http: HttpSettings,
    /// Authentication.
    pub auth: AuthSettings,
    /// Answers to Envoy.
    pub envoy: EnvoySettings,
    /// Quotas that are divided among Envoys (RLQS).
    pub rlqs: RlqsSettings,
    /// The store of the counts.
    pub store: StoreSettings,
    /// The metrics, and the bounds of their series.
    pub metrics: MetricsSettings,
    /// Graceful shutdown.
    pub shutdown: ShutdownSettings,
    /// Tracing, and the collector of the spans.
    pub tracing: TracingSettings,
    /// Logging.
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
            admin: AdminRule::default(),
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

/// The rule for limits that a request brings along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSpecRule {
    /// They decide the request.
    #[default]
    Allow,
    /// The request is rejected.
    Deny,
}

/// The clients that may reset keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetRule {
    /// Clients with the role `reset` if authentication is enabled, otherwise every client.
    #[default]
    Allow,
    /// Only authenticated clients with that role.
    Authenticated,
}

/// The clients that may make operators' calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminRule {
    /// Clients with the role `admin` if authentication is enabled, otherwise clients on this machine.
    #[default]
    Local,
    /// Only authenticated clients with that role.
    Authenticated,
}

/// The reason why the settings are invalid.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ConfigError(String);

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
        Self::load_with_origins(file, environment, flags).map(|(settings, _)| settings)
    }

    /// Like [`Settings::load`], and also returns the positions of the settings.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load_with_origins(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<(Self, SettingOrigins), ConfigError> {
        let defaults = Value::serialize(Self::default()).ok().and_then(Value::into_dict).unwrap_or_default();
        let mut origins = SettingOrigins::default();
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        let mut problems = Vec::new();
        if let Some(path) = file {
            match source::file(path, &defaults, &mut origins) {
                Ok(file) => figment = figment.merge(Serialized::defaults(file)),
                Err(wrong) => problems.push(wrong.to_string()),
            }
        }
        let of_file = PROTECTING.map(|(key, _)| (is_set(&figment, key), origins.of(key).map(str::to_owned)));
        let variables = source::environment(environment, &defaults, &mut origins, &mut problems);
        if !problems.is_empty() {
            return Err(ConfigError(problems.join("\n")));
        }
        figment = figment.merge(variables).merge(Serialized::defaults(flags.values(&mut origins)));
        for ((key, protection), (was_set, origin)) in PROTECTING.into_iter().zip(of_file) {
            if was_set && !is_set(&figment, key) {
                let (name, origin) = (variable(key), origin.unwrap_or_default());
                return Err(ConfigError(format!(
                    "{name} is empty and would turn off {protection} by {key} of {origin}; unset the variable, or \
                     remove the setting from the file"
                )));
            }
        }
        let settings: Result<Self, _> = figment.select(Profile::Default).extract();
        let settings = settings.map_err(|error| value_error(&error)).and_then(Self::checked);
        match settings {
            Ok(settings) => Ok((settings, origins)),
            Err(message) => Err(ConfigError(origins.locate(&message))),
        }
    }

    /// Loads the settings with these values, which override the environment.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn of_values<'a>(
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        // As environment variables, which are texts for settings of all types too.
        let variable = |(key, value): (&str, &str)| (source::variable(key), value.to_owned());
        let mut all: BTreeMap<_, _> = environment.into_iter().collect();
        all.extend(values.into_iter().map(variable));
        Self::load(None, all, &Flags::default())
    }
}

/// The settings that enable or restrict authentication, or enable TLS, with the effect of each. An empty variable, such
/// as one that a template did not fill in, does not unset them.
const PROTECTING: [(&str, &str); 9] = [
    ("auth.file", "the authentication"),
    ("grpc.tls.client_ca", "the authentication"),
    ("grpc.tls.client_names", "the restriction of clients"),
    ("grpc.tls.cert", "TLS"),
    ("grpc.tls.key", "TLS"),
    ("http.tls.client_ca", "the authentication"),
    ("http.tls.client_names", "the restriction of clients"),
    ("http.tls.cert", "TLS"),
    ("http.tls.key", "TLS"),
];

/// Whether a setting is a text or a list that is not empty.
fn is_set(figment: &Figment, key: &str) -> bool {
    match figment.find_value(key) {
        Ok(Value::String(_, text)) => !text.is_empty(),
        Ok(Value::Array(_, items)) => !items.is_empty(),
        _ => false,
    }
}

/// Formats a figment error on one line: the setting and the problem.
fn value_error(error: &figment::Error) -> String {
    let key = error.path.join(".");
    match &error.kind {
        Kind::UnknownVariant(found, known) => suggest::not_one_of(&key, known, &format!("`{found}`")),
        // The path of a list entry ends in its number.
        kind => format!("{}: {kind}", key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit())),
    }
}
