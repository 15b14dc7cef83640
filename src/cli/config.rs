//! `weir config check`

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::Args;
use time::{OffsetDateTime, macros::format_description};

use super::{CommandResult, Failure, SettingsArgs, block_on, located, out::print_line};
use crate::app::{self, AppError};

const DAY: Duration = Duration::from_secs(86_400);
/// Time before the expiry of a certificate or token from which a warning is printed.
const SOON: Duration = Duration::from_secs(30 * 86_400);

/// Validate settings, policy, certificates and credentials without serving
///
/// Opens no port and no connection to the store, and reads neither the snapshot nor the overrides. Prints when certificates
/// and tokens expire, with a warning if that is within 30 days. Prints the most memory that these settings allow, without
/// the policy and overrides.
///
/// Exit codes: 0: valid; 2: not valid. Standard error has a line for each problem found, with file, line and column; of values
/// out of range it is the first.
#[derive(Args)]
pub(super) struct Check {
    /// The settings file; overrides --config and WEIR_CONFIG
    file: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingsArgs,
}

impl Check {
    pub(super) fn run(mut self) -> CommandResult {
        self.settings.config = self.file.or(self.settings.config);
        let (settings, origins) = self.settings.load()?;
        let validated = block_on(async { Ok(app::validate(&settings)) })?;
        let located = |error: &AppError| located(error, &settings.limits, &origins);
        let validated =
            validated.map_err(|errors| Failure(errors.iter().map(located).collect::<Vec<_>>().join("\n")))?;
        let authentication = if validated.is_authenticated { "on" } else { "off" };
        match &validated.policy {
            Some(policy) => {
                print_line(format_args!(
                    "policy          {} domains, {} limits",
                    policy.domains().count(),
                    policy.limit_count()
                ))?;
            }
            None => print_line(format_args!("policy          from the control plane {}", settings.limits.display()))?,
        }
        print_line(format_args!("store           {}", settings.store.url))?;
        print_line(format_args!("gRPC            {}{}", settings.grpc.listen, tls(settings.grpc.tls.is_on())))?;
        print_line(format_args!("HTTP            {}{}", settings.http.listen, tls(settings.http.tls.is_on())))?;
        print_line(format_args!("authentication  {authentication}"))?;
        let now = SystemTime::now();
        for file in &validated.certificates {
            let first = if file.count > 1 { format!(", the first of {},", file.count) } else { String::new() };
            let what = format!("{}: {}{first}", file.setting, file.path.display());
            print_line(format_args!("certificate     {}", expiry(&what, file.expires, now)?))?;
        }
        if let Some((client, expires)) = validated.tokens.first() {
            let what = format!("auth.file: the first token, of {client},");
            print_line(format_args!("token           {}", expiry(&what, *expires, now)?))?;
        }
        for file in &validated.certificates {
            let what = format!("{}: a certificate in {}", file.setting, file.path.display());
            warn_of_expiry(&what, file.expires, now)?;
        }
        for (client, expires) in &validated.tokens {
            warn_of_expiry(&format!("auth.file: a token of {client}"), *expires, now)?;
        }
        print_line(format_args!("memory at most  within these settings:\n{}", validated.memory_bound))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Formats an expiry, such as ``grpc.tls.cert: server.pem expires 2027-01-31, in 69 days``.
fn expiry(what: &str, expires: SystemTime, now: SystemTime) -> Result<String, Failure> {
    let date = OffsetDateTime::from(expires).format(format_description!("[year]-[month]-[day]"))?;
    let days = |time: Duration| time.as_secs() / DAY.as_secs();
    Ok(match expires.duration_since(now) {
        Ok(left) => format!("{what} expires {date}, in {} days", days(left)),
        Err(since) => format!("{what} expired {date}, {} days ago", days(since.duration())),
    })
}

fn warn_of_expiry(what: &str, expires: SystemTime, now: SystemTime) -> Result<(), Failure> {
    if expires >= now + SOON {
        return Ok(());
    }
    print_line(format_args!("warning: {what} {}", if expires < now { "has expired" } else { "expires soon" }))?;
    Ok(())
}

fn tls(is_on: bool) -> &'static str {
    if is_on { ", TLS" } else { ", not encrypted" }
}
