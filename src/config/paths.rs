//! The settings that are paths: a relative one in a file is relative to that file's directory, an empty one is not set.

use std::path::PathBuf;

use super::Settings;

/// A setting that is a path.
pub struct PathSetting {
    /// The key of the setting, as in `grpc.tls.cert`.
    pub key: &'static str,
    /// Returns its value, if the file contains certificates.
    pub certificates: Option<fn(&Settings) -> &PathBuf>,
}

/// All settings that are paths.
pub const PATHS: [PathSetting; 19] = [
    path("limits"),
    path("auth.file"),
    certificates("grpc.tls.cert", |settings| &settings.grpc.tls.cert),
    path("grpc.tls.key"),
    certificates("grpc.tls.client_ca", |settings| &settings.grpc.tls.client_ca),
    certificates("http.tls.cert", |settings| &settings.http.tls.cert),
    path("http.tls.key"),
    certificates("http.tls.client_ca", |settings| &settings.http.tls.client_ca),
    path("store.snapshot.path"),
    path("store.redis.password_file"),
    certificates("store.redis.tls.ca", |settings| &settings.store.redis.tls.ca),
    certificates("store.redis.tls.cert", |settings| &settings.store.redis.tls.cert),
    path("store.redis.tls.key"),
    path("store.redis.sentinel.password_file"),
    certificates("xds.tls.ca", |settings| &settings.xds.tls.ca),
    certificates("xds.tls.cert", |settings| &settings.xds.tls.cert),
    path("xds.tls.key"),
    path("xds.last_policy_file"),
    certificates("tracing.ca", |settings| &settings.tracing.ca),
];

const fn path(key: &'static str) -> PathSetting {
    PathSetting { key, certificates: None }
}

const fn certificates(key: &'static str, value: fn(&Settings) -> &PathBuf) -> PathSetting {
    PathSetting { key, certificates: Some(value) }
}
