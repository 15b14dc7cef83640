//! The settings of the whole service, put together from those of its parts: defaults, then a file, then the environment,
//! then flags.

mod bounds;
mod derived;
mod flags;
mod paths;
mod source;
mod store;
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
            let file = source::file(path, &defaults, &mut places);
            figment = figment.merge(file.map_err(|problems| ConfigError(problems.to_string()))?);
        }
        let variables = source::environment(environment, &defaults, &mut places).map_err(ConfigError)?;
        figment = figment.merge(variables).merge(flags.values(&mut places));
        let settings: Result<Self, _> = figment.select(Profile::Default).extract();
        let settings = settings.map_err(|error| value_error(&error)).and_then(Self::checked);
        match settings {
            Ok(settings) => Ok((settings, places)),
            Err(message) => Err(ConfigError(places.locate(&message))),
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
