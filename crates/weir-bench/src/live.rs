//! A line per second on standard error during the load.

use std::io::{self, IsTerminal, Write};

use super::{
    recorder::Counts,
    report::{Latency, readable},
};

/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The printer of each second's counts. On a terminal each line replaces the previous one.
pub(crate) struct Live {
    wanted: bool,
    on_terminal: bool,
    is_shown: bool,
}

impl Live {
    /// Makes a printer for a terminal, or for any standard error if `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        let on_terminal = io::stderr().is_terminal();
        Self { wanted: wanted || on_terminal, on_terminal, is_shown: false }
    }

    /// Prints the counts of the last `seconds`, `second` seconds after the start.
    pub(crate) fn print(&mut self, second: u64, recorder: &Counts, seconds: f64) {
        if !self.wanted {
            return;
        }
        let text = summary(second, recorder, seconds);
        // A closed standard error does not end the load.
        let _ = if self.on_terminal {
            self.is_shown = true;
            write!(io::stderr(), "{CLEAR}weir-bench: {text}")
        } else {
            writeln!(io::stderr(), "weir-bench: {text}")
        };
    }

    /// Clears the line on a terminal.
    pub(crate) fn conclude(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }
}

fn summary(second: u64, recorder: &Counts, seconds: f64) -> String {
    if recorder.warm_up > 0 && recorder.calls == 0 {
        return format!("{second}s  warm-up  {:.0} checks/s", recorder.warm_up as f64 / seconds);
    }
    let (answered, latency) = (recorder.answered(), Latency::of(&recorder.latency));
    let [p50, p99, max] = [latency.p50, latency.p99, latency.max].map(readable);
    format!(
        "{second}s  {:.0} checks/s  refused {:.1}%  errors {}  p50 {p50}  p99 {p99}  max {max}",
        answered as f64 / seconds,
        recorder.refused as f64 / answered.max(1) as f64 * 100.0,
        recorder.failed(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_is_summarized_in_one_line() {
        let mut recorder = Counts::new().unwrap();
        recorder.warm_up = 500;
        assert_eq!(summary(1, &recorder, 0.5), "1s  warm-up  1000 checks/s");
        (recorder.calls, recorder.allowed, recorder.refused) = (1, 300, 100);
        recorder.latency.saturating_record(2_500_000);
        assert_eq!(
            summary(2, &recorder, 1.0),
            "2s  400 checks/s  refused 25.0%  errors 0  p50 2.50ms  p99 2.50ms  max 2.50ms"
        );
    }
}
