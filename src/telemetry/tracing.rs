//! Structured logs on standard error.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// How logs are written.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// `text` or `json`.
    pub format: LogFormat,
    /// The minimum level that is logged: `error`, `warn`, `info`, `debug`, `trace`, or filters such as `weir=debug,info`.
    pub level: String,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

/// Sends the logs of this process to standard error from now on.
///
/// # Errors
/// A sentence, for a level that cannot be read.
pub fn init(settings: &LogSettings) -> Result<(), String> {
    // h2 warns of what a peer does wrong, as often as that does it. What matters of it is counted or ends the connection.
    let names_h2 = settings.level.split(',').any(|filter| filter.trim().starts_with("h2"));
    let level = if names_h2 { settings.level.clone() } else { format!("{},h2=error", settings.level) };
    let filter = EnvFilter::try_new(level).map_err(|error| format!("log.level `{}`: {error}", settings.level))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match settings.format {
        LogFormat::Text => logs.with_ansi(false).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    Ok(())
}
