//! `weir config check`

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{CommandResult, block_on, out::say, variables};
use crate::{
    app,
    config::{Flags, Settings},
};

/// Load settings, policy, certificates and clients as `serve` would, and print what would be in force
///
/// Nothing listens, and no store is asked. The last lines are the memory that the service takes at most within the settings,
/// but for request bodies over HTTP and what HTTP/2 holds back for connections that read slowly. Exit code 0: `serve` would
/// start with these files; 2: it would not, and why.
#[derive(Args)]
pub struct Check {
    /// The file with the settings
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG")]
    config: Option<PathBuf>,
    /// The policy: a YAML file or a directory of them
    #[arg(long, value_name = "PATH")]
    limits: Option<PathBuf>,
    /// Where counts live
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl Check {
    pub fn run(self) -> CommandResult {
        let flags = Flags { limits: self.limits, store: self.store };
        let settings = Settings::load(self.config.as_deref(), variables(), &flags)?;
        let loaded = block_on(async { Ok(app::check(&settings)?) })?;
        let authentication = if loaded.is_authenticated { "on" } else { "off" };
        say(format_args!("policy          {} domains, {} limits", loaded.domains, loaded.limits))?;
        say(format_args!("store           {}", settings.store.url))?;
        say(format_args!("gRPC            {}{}", settings.grpc.listen, tls(settings.grpc.tls.is_on())))?;
        say(format_args!("HTTP            {}{}", settings.http.listen, tls(settings.http.tls.is_on())))?;
        say(format_args!("authentication  {authentication}"))?;
        say(format_args!("memory at most  within these settings:\n{}", loaded.worst_case))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn tls(is_on: bool) -> &'static str {
    if is_on { ", TLS" } else { ", not encrypted" }
}
