//! `weir token`

use std::process::ExitCode;

use clap::Args;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use weir_core::domain::time::{SECOND, parse_duration};
use weir_policy::limits::is_name;

use super::{CommandResult, Failure, out::print_line};
use crate::auth::{Role, TokenHash, token};

/// Create a bearer token and its entry for the credentials file (auth.file)
///
/// Give the token to the client; Weir does not store it. The entry holds only its hash. To give an existing client another
/// token, add the line below `tokens` to its entry.
#[derive(Args)]
pub(super) struct Token {
    /// The client's name
    #[arg(value_name = "NAME")]
    name: String,
    /// Its roles: check, reset, metrics, admin; separated by commas
    #[arg(long, value_delimiter = ',', default_value = "check", value_parser = parse_role)]
    roles: Vec<Role>,
    /// How long the token is valid, from now: 90d
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_role(name: &str) -> Result<Role, String> {
    Role::of_name(name).ok_or_else(|| format!("there are {}", Role::ALL.map(Role::name).join(", ")))
}

impl Token {
    pub(super) fn run(self) -> CommandResult {
        if !is_name(&self.name) {
            return Err(Failure("a client's name must be 1 to 256 bytes without control characters".to_owned()));
        }
        let expires = self.expires.as_deref().map(end).transpose().map_err(Failure)?;
        let token = token::random().map_err(Failure)?;
        let hash = TokenHash::of(token.reveal().as_bytes()).to_string();
        let roles: Vec<_> = self.roles.iter().map(|role| role.name()).collect();
        // JSON is YAML.
        let name = serde_json::to_string(&self.name)?;
        let mut entry = format!("  {name}:\n    roles: [{}]\n    tokens:\n      - sha256: {hash}\n", roles.join(", "));
        if let Some(expires) = &expires {
            entry.push_str(&format!("        expires: {expires}\n"));
        }
        if self.json {
            let token = token.reveal();
            print_line(
                serde_json::json!({ "name": self.name, "roles": roles, "token": token, "sha256": hash, "expires": expires }),
            )?;
        } else {
            print_line(token.reveal())?;
            print_line(format_args!("\n# For the file in auth.file, below `clients:`\n{}", entry.trim_end()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the time after this duration, to the second.
fn end(after: &str) -> Result<String, String> {
    let micros = parse_duration(after)?;
    if micros < SECOND {
        return Err("--expires must be at least 1s".to_owned());
    }
    let end = OffsetDateTime::now_utc().checked_add(time::Duration::microseconds(micros));
    let end = end.and_then(|end| end.replace_nanosecond(0).ok()).ok_or("the expiry is too far in the future")?;
    end.format(&Rfc3339).map_err(|error| error.to_string())
}
