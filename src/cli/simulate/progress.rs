//! The progress of a replay, on standard error.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use crate::cli::out::print_error;

/// Interval between updates on a terminal.
const ON_TERMINAL: Duration = Duration::from_millis(250);
/// Interval between lines elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(5);
/// Moves to the start of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The progress of a replay.
pub(super) struct Progress {
    started: Instant,
    shown_at: Instant,
    /// Interval between updates; `None`: the progress is not shown.
    every: Option<Duration>,
    on_terminal: bool,
    /// Whether the line of the terminal has text.
    is_shown: bool,
    lines: u64,
    bytes: u64,
    /// Size of the text in bytes, if known.
    size: Option<u64>,
}

impl Progress {
    /// Starts before the first line. The progress is shown on a terminal without other output, and elsewhere if
    /// `wanted`.
    pub(super) fn new(wanted: bool, is_alone: bool, size: Option<u64>) -> Self {
        let on_terminal = io::stderr().is_terminal();
        let every = if on_terminal { ON_TERMINAL } else { ELSEWHERE };
        let now = Instant::now();
        Self {
            started: now,
            shown_at: now,
            every: (wanted || on_terminal && is_alone).then_some(every),
            on_terminal,
            is_shown: false,
            lines: 0,
            bytes: 0,
            size,
        }
    }

    /// Returns the number of lines replayed so far.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Adds replayed lines, sets the bytes of the text read so far, and shows both when it is due.
    pub(super) fn advance(&mut self, more_lines: u64, bytes: u64) {
        self.lines += more_lines;
        self.bytes = bytes;
        let Some(every) = self.every else { return };
        let now = Instant::now();
        if now - self.shown_at >= every {
            self.shown_at = now;
            self.print();
        }
    }

    /// Prints a message in between.
    pub(super) fn interrupt(&mut self, text: &str) {
        self.clear();
        print_error(format_args!("weir: {text}"));
    }

    /// Ends the progress: clears the line of a terminal, prints a last line elsewhere.
    pub(super) fn conclude(&mut self) {
        self.clear();
        if self.every.is_some() && !self.on_terminal {
            self.print();
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }

    fn print(&mut self) {
        let text = line(self.lines, self.bytes, self.size, self.started.elapsed());
        // A closed standard error does not end the command.
        let _ = if self.on_terminal {
            self.is_shown = true;
            write!(io::stderr(), "{CLEAR}weir: {text}")
        } else {
            writeln!(io::stderr(), "weir: {text}")
        };
    }
}

fn line(lines: u64, bytes: u64, size: Option<u64>, elapsed: Duration) -> String {
    let part = match size {
        Some(size) if size > 0 => format!(", {}%", bytes.saturating_mul(100) / size),
        _ => String::new(),
    };
    let rate = lines as f64 / elapsed.as_secs_f64().max(0.001);
    format!("{lines} lines{part}, {rate:.0} lines/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentage_is_printed_when_the_size_is_known() {
        let second = Duration::from_secs(2);
        assert_eq!(line(1_000, 50, Some(200), second), "1000 lines, 25%, 500 lines/s");
        assert_eq!(line(1_000, 50, None, second), "1000 lines, 500 lines/s");
        assert_eq!(line(0, 0, Some(0), Duration::ZERO), "0 lines, 0 lines/s");
    }
}
