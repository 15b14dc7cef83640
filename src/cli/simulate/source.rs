//! The source of the lines: a trace or an access log.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    path::PathBuf,
};

use clap::Args;

use super::{
    Failure,
    access::{AccessLog, Arrivals, Field, KeyFrom, SecondBuffer},
    lines::{Lines, Trace},
    progress::Progress,
    replay::Replay,
    skipped::SkippedLines,
};

/// Where the lines come from, and what they mean.
#[derive(Args)]
pub(super) struct Source {
    /// The trace, or - for standard input
    #[arg(long, value_name = "FILE", default_value = "-", conflicts_with = "access_log")]
    trace: PathBuf,
    /// An access log instead of a trace, or - for standard input: the common or combined log format of nginx and Apache,
    /// Envoy's default format, or JSON lines. Lines that cannot be parsed are skipped; the first few are reported
    #[arg(long, value_name = "FILE", requires = "key_from")]
    access_log: Option<PathBuf>,
    /// The key of a log line: segments between slashes, each a text or a {field}, as in 'ip/{remote_addr}/{method}'. The value of
    /// a field is one segment, also if it has slashes
    ///
    /// Fields: remote_addr, remote_user, ident, request, method, path (without its query), protocol, status, bytes, referer,
    /// user_agent, host; Envoy also has x_forwarded_for, request_id, bytes_received, duration, response_flags, upstream_host;
    /// JSON lines have any, with dots for nested maps. {path:2} is the second segment of a path, {url:path} the path of any URL. An empty
    /// value is `-`. A line without the field is skipped; with {field?} its value is `-`.
    #[arg(long, value_name = "SPEC", requires = "access_log", value_parser = KeyFrom::parse)]
    key_from: Option<KeyFrom>,
    /// The log field with the cost, such as `bytes`; default: a cost of 1
    #[arg(long, value_name = "FIELD", requires = "access_log", value_parser = Field::parse)]
    cost_from: Option<Field>,
    /// The JSON field with the time: ISO 8601, the common log format's, or a number since 1970. Default: time,
    /// ts, @timestamp, timestamp, msec, time_iso8601, time_local, start_time or StartUTC
    #[arg(long, value_name = "FIELD", requires = "access_log")]
    time_from: Option<String>,
    /// The domain of the log's keys
    #[arg(long, default_value = "", requires = "access_log")]
    domain: String,
    /// How to place the lines of one second when the log has whole seconds only
    #[arg(long, value_enum, default_value = "spread", requires = "access_log")]
    arrivals: Arrivals,
}

impl Source {
    /// Whether the lines are those of an access log.
    pub(super) fn is_access_log(&self) -> bool {
        self.access_log.is_some()
    }

    /// Opens the source. For the progress see [`Progress::new`].
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(&self, progress: bool, is_alone: bool) -> Result<Replay, Failure> {
        let path = self.access_log.as_ref().unwrap_or(&self.trace);
        let is_stdin = path.as_os_str() == "-";
        let file = if is_stdin {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path).map_err(|error| format!("{}: {error}", path.display()))?
        };
        let size = file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
        let is_alone = is_alone && !(is_stdin && io::stdin().is_terminal());
        let progress = Progress::new(progress, is_alone, size);
        let (lines, skipped) = match self.log() {
            Some(log) => (Lines::read(file, log)?, Some(SkippedLines::default())),
            None => (Lines::read(file, Trace)?, None),
        };
        Ok(Replay { lines, skipped, progress })
    }

    fn log(&self) -> Option<AccessLog> {
        Some(AccessLog {
            key_from: self.key_from.clone()?,
            cost_from: self.cost_from.clone(),
            time_from: self.time_from.clone(),
            domain: self.domain.clone(),
            arrivals: self.arrivals,
            second_buffer: SecondBuffer::default(),
        })
    }
}
