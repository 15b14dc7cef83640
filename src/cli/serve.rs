//! `weir serve`

use std::{env, path::PathBuf, process::ExitCode};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::{CommandResult, Failure, variables};
use crate::{
    app::App,
    config::{Flags, Settings},
    telemetry,
};

/// Serve checks until SIGTERM or SIGINT
///
/// Settings come from a file, then the environment (WEIR_GRPC__LISTEN for grpc.listen), then flags; config/weir.yaml
/// explains each. Ports: gRPC 127.0.0.1:8081; HTTP 127.0.0.1:8080 with the same as JSON, /metrics, /healthz and /readyz.
/// SIGHUP reads the policy again; a changed file is noticed by itself. A second SIGTERM or SIGINT ends at once.
#[derive(Args)]
pub struct Serve {
    /// The file with the settings
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG")]
    config: Option<PathBuf>,
    /// The policy: a YAML file or a directory of them
    #[arg(long, value_name = "PATH")]
    limits: Option<PathBuf>,
    /// Where counts live: memory, redis://, rediss://, redis+unix://, redis-sentinel:// or redis-cluster://
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Set the snapshot aside, as PATH.rejected, and start without it
    #[arg(long)]
    start_empty: bool,
}

impl Serve {
    /// What runs when no command is given.
    pub fn quick_start(config: Option<PathBuf>) -> Self {
        let config = env::var_os("WEIR_CONFIG").map(PathBuf::from).or(config);
        Self { config, limits: None, store: None, start_empty: false }
    }

    pub fn run(self) -> CommandResult {
        let flags = Flags { limits: self.limits, store: self.store };
        let settings = Settings::load(self.config.as_deref(), variables(), &flags)?;
        telemetry::tracing::init(&settings.log).map_err(Failure)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("weir-control")
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let mut term = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut asked_to_end = async move || {
                tokio::select! {
                    _ = term.recv() => info!("SIGTERM"),
                    _ = interrupt.recv() => info!("SIGINT"),
                }
            };
            let app = App::bind(settings, self.start_empty).await?;
            let (first, begun) = tokio::sync::oneshot::channel();
            let mut serving = tokio::spawn(app.run(async {
                // A sender that is gone asks to end too.
                let _ = begun.await;
            }));
            tokio::select! {
                () = asked_to_end() => {}
                ended = &mut serving => return ended.map(|_| ()).map_err(Failure::from),
            }
            let _ = first.send(());
            tokio::select! {
                () = asked_to_end() => info!("asked again: ending at once"),
                ended = serving => return ended.map(|_| ()).map_err(Failure::from),
            }
            std::process::exit(0);
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
