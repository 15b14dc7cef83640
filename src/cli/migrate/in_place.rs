//! `ratelimit`: this program under the name of that service's, started by its variables.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use tracing::{info, warn};
use weir_settings::file::is_set;

use super::{Environment, Failure, translate};
use crate::{
    cli::{CommandResult, serve, variables},
    config::Settings,
    telemetry,
};

const WATCHES_ROOT: &str = "RUNTIME_WATCH_ROOT";

/// Serves by the variables of envoyproxy/ratelimit as `weir migrate` translates them. They override `WEIR_…` variables, which
/// set what that service has no variable for. What has no equivalent is logged.
///
/// # Errors
/// Something would be decided, encrypted or counted otherwise than there.
pub(crate) fn serve_in_place() -> CommandResult {
    if env::args_os().len() > 1 {
        return Err(Failure("as `ratelimit` it takes no arguments; call it `weir` for its commands".to_owned()));
    }
    let environment = Environment::of_process(variables());
    let sheet = translate::translate(&environment).map_err(Failure)?;
    let mut obstacles: Vec<_> = sheet.required().map(str::to_owned).collect();
    let mut settings = Settings::of_values(sheet.values(), variables())?;
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
    for entry in sheet.advice() {
        warn!(entry, "a variable needs a step by hand");
    }
    for entry in &sheet.missing {
        warn!(entry, "a variable has no equivalent");
    }
    for entry in &sheet.not_needed {
        info!(entry, "a variable is not needed");
    }
    serve::run(settings, None, None, false)
}

/// What that service reads besides its directory of policies where it watches the root: all that begins with the directory's name
/// and a dot.
fn beside(directory: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else { return Vec::new() };
    let prefix = [name.as_encoded_bytes(), b"."].concat();
    let entries = fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect()
}

/// Files of any name, in directories too.
fn is_read_there(path: &Path) -> bool {
    !path.is_dir() || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
}
