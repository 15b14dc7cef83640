//! `weir serve`

use std::{
    io::{self, ErrorKind},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use tokio::{runtime::Handle, sync::watch, task::spawn_blocking, time::sleep};
use tracing::{info, warn};
use weir_settings::file::is_set;

use super::{
    CommandResult, Failure, SettingsArgs, located,
    signals::{EarlyHangups, StopSignals},
};
use crate::{
    app::{App, AppError, RunOutcome},
    config::{SettingOrigins, Settings},
    telemetry,
};

/// Duration of a startup after which it is logged, and interval between further log lines.
const SLOW_START: Duration = Duration::from_secs(60);
/// The exit code if the last snapshot could not be written.
const NOT_SAVED: u8 = 3;
/// The exit code if a part of the service has panicked.
const PANICKED: u8 = 5;

/// Serve checks until SIGTERM or SIGINT
///
/// Settings come from a file, then the environment (WEIR_GRPC__LISTEN for grpc.listen), then flags; config/weir.yaml
/// explains each. Ports: gRPC 127.0.0.1:8081; HTTP 127.0.0.1:8080 (the same API as JSON, /metrics, /healthz, /readyz).
/// SIGHUP reloads the policy; changed files are reloaded automatically. A second SIGTERM or SIGINT ends immediately.
///
/// Exit codes: 0 after SIGTERM or SIGINT; 2 when it cannot start; 3 when the last snapshot could not be written; 4 after a
/// second signal; 5 when a part of the service has panicked.
#[derive(Args)]
pub(super) struct Serve {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Rename the snapshot to PATH.rejected, and start without it; also a damaged file of overrides
    #[arg(long)]
    start_empty: bool,
}

impl Serve {
    /// Uses the settings in `config` if no file is named and it exists, even if it is unreadable.
    pub(super) fn or_configured_by(mut self, config: &Path) -> Self {
        let is_missing = |error: io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        let is_there = || !config.symlink_metadata().is_err_and(is_missing);
        self.settings.config = self.settings.file().or_else(|| is_there().then(|| config.to_owned()));
        self
    }

    pub(super) fn run(self) -> CommandResult {
        let hangups = EarlyHangups::listen()?;
        let file = self.settings.file();
        let (settings, origins) = self.settings.load()?;
        telemetry::tracing::init(&settings.log).map_err(Failure)?;
        run(hangups, settings, Some(origins), file.as_deref(), self.start_empty)
    }
}

/// Serves with these settings, which were read from `file`; `origins` has the position of each.
pub(super) fn run(
    hangups: EarlyHangups,
    settings: Settings,
    origins: Option<SettingOrigins>,
    file: Option<&Path>,
    start_empty: bool,
) -> CommandResult {
    if let Some(problem) = settings.unusable_store_files().into_iter().next() {
        return Err(Failure(origins.as_ref().map_or(problem.clone(), |origins| origins.locate(&problem))));
    }
    let path = |path: &Path| is_set(path).then(|| path.display().to_string());
    info!(
        version = env!("CARGO_PKG_VERSION"),
        settings = file.and_then(path),
        limits = path(&settings.limits),
        limits_set_by = origins.as_ref().and_then(|origins| origins.of("limits")),
        credentials = path(&settings.auth.file),
        "starting"
    );
    let (signals, hangups) = StopSignals::listen(hangups)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("weir-control")
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serve(settings, origins, start_empty, signals, hangups));
    // The process ends next. Dropping the runtime would wait for threads that read files, one of which may hang
    // forever, and an unfinished startup would panic in a runtime that is shut down.
    std::mem::forget(runtime);
    ended
}

async fn serve(
    settings: Settings,
    origins: Option<SettingOrigins>,
    start_empty: bool,
    mut signals: StopSignals,
    hangups: watch::Receiver<()>,
) -> CommandResult {
    let (runtime, limits) = (Handle::current(), settings.limits.clone());
    let failure = |error: AppError| match &origins {
        Some(origins) => Failure(located(&error, &limits, origins)),
        None => error.into(),
    };
    // On the blocking pool, as it reads files and may hang there.
    let mut starting = spawn_blocking(move || runtime.block_on(App::bind(settings, start_empty, &hangups)));
    let app = loop {
        tokio::select! {
            bound = &mut starting => break bound?.map_err(failure)?,
            signal = signals.first() => {
                info!(signal, "stopped during startup");
                return Ok(ExitCode::SUCCESS);
            }
            () = sleep(SLOW_START) => warn!("still starting: the configured files are read, or the control plane has sent no policy"),
        }
    };
    let shutdown = async move {
        let signal = signals.first().await;
        info!(signal, "shutdown requested");
    };
    Ok(match tokio::spawn(app.run(shutdown)).await? {
        RunOutcome::Gracefully => ExitCode::SUCCESS,
        RunOutcome::NotSaved => ExitCode::from(NOT_SAVED),
        RunOutcome::Panicked => ExitCode::from(PANICKED),
    })
}
