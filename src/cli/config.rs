//! `weir config check`

use std::process::ExitCode;

use clap::Args;

use super::{CommandResult, SettingsArgs, block_on, out::say};
use crate::app;

/// Validate settings, policy, certificates and credentials without serving
///
/// Opens no port and no connection to the store. The last lines are an upper bound on memory within the settings, without
/// HTTP request bodies and HTTP/2 send buffers of slow readers. Exit code 0: valid; 2: not valid, with the reason.
#[derive(Args)]
pub struct Check {
    #[command(flatten)]
    settings: SettingsArgs,
}

impl Check {
    pub fn run(self) -> CommandResult {
        let settings = self.settings.load()?;
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
