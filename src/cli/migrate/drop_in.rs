//! `ratelimit`: this program as a drop-in replacement of envoyproxy/ratelimit, configured by its environment variables.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use tracing::{info, warn};
use weir_settings::file::is_set;

use super::{Environment, Failure, translate};
use crate::{
    cli::{CommandResult, serve, signals::EarlyHangups, variables},
    config::{FILE_VARIABLE, Settings, variable},
    telemetry,
};

const WATCHES_ROOT: &str = "RUNTIME_WATCH_ROOT";

/// Serves with the variables of envoyproxy/ratelimit, translated as by `weir migrate`. They override `WEIR_…`
/// variables, which configure what that service has no variable for. Variables without an equivalent are logged.
///
/// # Errors
/// This service would decide, encrypt or count differently.
pub(crate) fn serve_drop_in() -> CommandResult {
    if env::args_os().len() > 1 {
        return Err(Failure("as `ratelimit` it takes no arguments; call it `weir` for its commands".to_owned()));
    }
    let hangups = EarlyHangups::listen()?;
    let environment = Environment::of_process(variables());
    let translation = translate::translate(&environment).map_err(Failure)?;
    let has_variable = |key: &str| env::var_os(variable(key)).is_some_and(|value| !value.is_empty());
    let mut obstacles: Vec<_> = translation.required(has_variable).map(str::to_owned).collect();
    if env::var_os(FILE_VARIABLE).is_some_and(|file| !file.is_empty()) {
        obstacles.push(format!("{FILE_VARIABLE}: no settings file is read; name settings by WEIR_… variables"));
    }
    let is_overridden =
        |key: &str| translate::DEFAULTS.iter().any(|(name, ..)| *name == key) && env::var_os(variable(key)).is_some();
    let values = translation.values().filter(|(key, _)| !is_overridden(key));
    let mut settings = Settings::of_values(values, variables())?;
    settings.allow_all = false;
    if settings.control_plane().is_none() && is_set(&settings.limits) {
        let beside = match environment.text(WATCHES_ROOT) {
            Some(_) if !environment.is_on(WATCHES_ROOT).map_err(Failure)? => Vec::new(),
            _ => beside(&settings.limits),
        };
        let skipped = weir_policy::skipped(&settings.limits).into_iter().chain(beside);
        obstacles.extend(skipped.filter(|path| is_read_there(path)).map(|path| {
            format!("RUNTIME_ROOT: {} is not read: name policy files *.yaml or *.yml in one directory", path.display())
        }));
    }
    if !obstacles.is_empty() {
        return Err(Failure(format!("cannot take the place of envoyproxy/ratelimit:\n  {}", obstacles.join("\n  "))));
    }
    telemetry::tracing::init(&settings.log).map_err(Failure)?;
    for entry in translation.advice() {
        warn!(entry, "a variable needs a step by hand");
    }
    for entry in &translation.unsupported {
        warn!(entry, "a variable has no equivalent");
    }
    for entry in &translation.not_needed {
        info!(entry, "a variable is not needed");
    }
    serve::run(hangups, settings, None, None, false)
}

/// Returns the paths that envoyproxy/ratelimit reads in addition to its policy directory when it watches the root:
/// those that start with the name of the directory and a dot.
fn beside(directory: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else { return Vec::new() };
    let prefix = [name.as_encoded_bytes(), b"."].concat();
    let entries = fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect()
}

/// Whether envoyproxy/ratelimit would read the path: a file of any name, or a directory that is not empty.
fn is_read_there(path: &Path) -> bool {
    !path.is_dir() || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
}
