//! Log lines in logfmt: `ts=… level=info target=weir::app msg="policy loaded" domains=1`.

use std::fmt::{self, Write};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::controls::is_control;

/// The name of the field with an event's text.
const MESSAGE: &str = "message";

/// Writes an event as one line of logfmt.
pub(super) struct Logfmt;

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        out.write_str("ts=")?;
        SystemTime.format_time(&mut out)?;
        write!(out, " level={level} target={}", event.metadata().target())?;
        // The message comes before the other fields, regardless of its position among them.
        let mut text = String::new();
        event.record(&mut Fields { out: &mut text, wants_message: true });
        event.record(&mut Fields { out: &mut text, wants_message: false });
        writeln!(out, "{text}")
    }
}

/// Appends either the message or the other fields.
struct Fields<'o> {
    out: &'o mut String,
    wants_message: bool,
}

impl Fields<'_> {
    fn pair(&mut self, field: &Field, value: &str) {
        if (field.name() == MESSAGE) == self.wants_message {
            let name = if self.wants_message { "msg" } else { field.name() };
            let _ = write!(self.out, " {name}={}", Quoted(value));
        }
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.pair(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.pair(field, value);
    }
}

/// A value, quoted and escaped as in JSON if logfmt requires it.
struct Quoted<'v>(&'v str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |char: char| !char.is_whitespace() && !is_control(char) && !matches!(char, '=' | '"' | '\\');
        if !self.0.is_empty() && self.0.chars().all(is_plain) {
            f.write_str(self.0)
        } else {
            f.write_str(&serde_json::to_string(self.0).map_err(|_| fmt::Error)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use parking_lot::Mutex;
    use weir_telemetry::Causes;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log lines, without the times.
    fn logged(log: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let logs = tracing_subscriber::fmt().event_format(Logfmt).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(logs, log);
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        text.lines()
            .map(|line| line.split_once(' ').unwrap())
            .inspect(|(time, _)| assert!(time.starts_with("ts=2")))
            .map(|(_, line)| line.to_owned())
            .collect()
    }

    #[test]
    fn values_are_quoted_where_they_must_be() {
        let cause = io::Error::other(fmt::Error);
        let lines = logged(|| {
            tracing::info!(domains = 2, path = "/a b", absent = None::<u64>, empty = "", "policy loaded");
            tracing::warn!(ok = true, seconds = 1.5, text = "say \"it's\"\n\\=", key = %"user/ä", csi = "\u{9b}2J", rtl = "\u{202e}", "a {}", "b");
            tracing::error!(error = %Causes(&cause), "failed");
        });
        let line = |level, rest| format!("level={level} target={} {rest}", module_path!());
        assert_eq!(lines[0], line("info", r#"msg="policy loaded" domains=2 path="/a b" empty="""#));
        assert_eq!(
            lines[1],
            line(
                "warn",
                "msg=\"a b\" ok=true seconds=1.5 text=\"say \\\"it's\\\"\\n\\\\=\" key=user/ä csi=\"\u{9b}2J\" rtl=\"\u{202e}\""
            )
        );
        assert!(lines[2].starts_with(&line("error", "msg=failed error=\"")), "{}", lines[2]);
    }
}
