//! Structured logs on standard error.

use std::{panic, thread};

use serde::{Deserialize, Serialize};
use tracing::error;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use super::{
    log_writer::{self, QueuedLine},
    logfmt::Logfmt,
};

/// The settings of the log.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// `text` or `json`.
    pub format: LogFormat,
    /// The minimum level that is logged: `error`, `warn`, `info`, `debug`, `trace`, or filters such as `weir=debug,info`.
    pub level: String,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable: logfmt.
    #[default]
    Text,
    /// Machine-readable: one JSON object per line.
    Json,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

impl LogSettings {
    /// Returns the filter of `level`.
    ///
    /// # Errors
    /// A message that names `log.level`, if it is invalid.
    pub fn filter(&self) -> Result<EnvFilter, String> {
        let wrong = |filter: &str, why: &str| {
            format!(
                "log.level: `{filter}`: {why}; write error, warn, info, debug, trace or off, or TARGET=LEVEL, separated by commas"
            )
        };
        let mut filters = Vec::new();
        for filter in self.level.split(',').map(str::trim) {
            // `EnvFilter` takes a word that is not a level as a target, which silences all others.
            let is_level = filter.parse::<LevelFilter>().is_ok();
            match filter {
                "" => return Err(wrong(filter, "empty")),
                "warning" => filters.push("warn"),
                _ if !is_level && !filter.contains(['=', '[']) => return Err(wrong(filter, "not a level")),
                _ => filters.push(filter),
            }
        }
        // h2 warns about every protocol error of a peer. Those that matter are counted or end the connection.
        if !filters.iter().any(|filter| filter.starts_with("h2")) {
            filters.push("h2=error");
        }
        EnvFilter::try_new(filters.join(",")).map_err(|error| wrong(&self.level, &error.to_string()))
    }
}

/// Sends the logs of this process to standard error from now on. [`flush`] must be called before the process ends.
///
/// # Errors
/// A message, for an invalid level or if no thread can be started.
pub fn init(settings: &LogSettings) -> Result<(), String> {
    let logs = tracing_subscriber::fmt().with_env_filter(settings.filter()?).with_writer(|| QueuedLine);
    log_writer::start().map_err(|error| format!("cannot start the thread that writes the log: {error}"))?;
    match settings.format {
        LogFormat::Text => logs.with_ansi(false).event_format(Logfmt).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    // The default hook writes to standard error itself, which blocks the thread while its reader stalls.
    panic::set_hook(Box::new(|panic| {
        let current = thread::current();
        error!(thread = current.name(), "{panic}");
        if current.name() == Some("main") {
            // The process ends next.
            flush();
        }
    }));
    Ok(())
}

/// Writes a last line to standard error; if [`init`] has started the log, behind it, and waits for at most a second.
pub fn end_with(line: &str) {
    log_writer::end_with(line);
}

/// Waits until the log is written, for at most a second: its reader may have stalled.
pub fn flush() {
    log_writer::flush();
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        process::{self, Command, Stdio},
        time::{Duration, Instant},
    };

    use tracing::info;

    use super::*;

    fn filter(level: &str) -> Result<String, String> {
        let settings = LogSettings { level: level.to_owned(), ..LogSettings::default() };
        settings.filter().map(|filter| filter.to_string())
    }

    #[test]
    fn invalid_log_levels_are_errors_and_warning_means_warn() {
        assert_eq!(filter("warning"), filter("warn"));
        assert_eq!(filter("INFO").unwrap(), "h2=error,info");
        assert_eq!(filter("info,h2=warn").unwrap(), "h2=warn,info");
        assert_eq!(filter("weir=debug, info").unwrap(), "weir=debug,h2=error,info");
        for level in ["verbose", "", "info,", "weir", "weir=loud", "info,verbose"] {
            let error = filter(level).unwrap_err();
            assert!(error.starts_with("log.level: `") && error.contains("TARGET=LEVEL"), "{level}: {error}");
        }
    }

    /// Runs itself in processes of its own, since a process has one log and one hook for panics.
    #[test]
    fn a_stalled_reader_of_the_log_blocks_neither_a_panic_nor_the_end() {
        const CHILD: &str = "WEIR_TEST_LOG";
        if env::var_os(CHILD).is_some() {
            init(&LogSettings::default()).unwrap();
            // More than a pipe holds.
            (0..2_000).for_each(|line| info!(line, "a line that nothing reads, while its reader stalls"));
            thread::Builder::new()
                .name("worker".to_owned())
                .spawn(|| panic!("deliberate"))
                .unwrap()
                .join()
                .unwrap_err();
            let started = Instant::now();
            end_with("weir: the last line");
            assert!(started.elapsed() < Duration::from_secs(30));
            process::exit(0);
        }
        let child = || {
            let name = "telemetry::tracing::tests::a_stalled_reader_of_the_log_blocks_neither_a_panic_nor_the_end";
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let read = child().wait_with_output().unwrap();
        let log = String::from_utf8(read.stderr).unwrap();
        let last: Vec<&str> = log.lines().rev().take(2).collect();
        assert!(read.status.success() && last[0] == "weir: the last line", "{log}");
        assert!(last[1].contains("level=error") && last[1].ends_with("deliberate\" thread=worker"), "{}", last[1]);

        let (mut stalled, started) = (child(), Instant::now());
        let ended = loop {
            match stalled.try_wait().unwrap() {
                None if started.elapsed() < Duration::from_secs(60) => thread::sleep(Duration::from_millis(20)),
                ended => break ended,
            }
        };
        let _ = stalled.kill();
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    }
}
