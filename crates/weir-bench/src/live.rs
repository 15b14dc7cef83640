//! A line a second on standard error, while the load is made.

use std::io::{self, IsTerminal, Write};

use super::{
    report::{Latency, readable},
    tally::Tally,
};

/// Goes to the line's start and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Tells how each second went. On a terminal each line replaces the one before.
pub struct Live {
    wanted: bool,
    on_terminal: bool,
    is_shown: bool,
}

impl Live {
    /// On a terminal, and elsewhere when `wanted`.
    pub fn new(wanted: bool) -> Self {
        let on_terminal = io::stderr().is_terminal();
        Self { wanted: wanted || on_terminal, on_terminal, is_shown: false }
    }

    /// What a second came to, so many seconds after the start.
    pub fn say(&mut self, second: u64, tally: &Tally, seconds: f64) {
        if !self.wanted {
            return;
        }
        let text = told(second, tally, seconds);
        // Nobody may be there to see it, which is no reason to stop.
        let _ = if self.on_terminal {
            self.is_shown = true;
            write!(io::stderr(), "{CLEAR}weir-bench: {text}")
        } else {
            writeln!(io::stderr(), "weir-bench: {text}")
        };
    }

    /// The end: what a terminal shows is cleared.
    pub fn conclude(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("{CLEAR}");
        }
    }
}

fn told(second: u64, tally: &Tally, seconds: f64) -> String {
    if tally.warm_up > 0 && tally.calls == 0 {
        return format!("{second}s  warm-up  {:.0} checks/s", tally.warm_up as f64 / seconds);
    }
    let (answered, latency) = (tally.answered(), Latency::of(&tally.latency));
    let [p50, p99, max] = [latency.p50, latency.p99, latency.max].map(readable);
    format!(
        "{second}s  {:.0} checks/s  refused {:.1}%  errors {}  p50 {p50}  p99 {p99}  max {max}",
        answered as f64 / seconds,
        tally.refused as f64 / answered.max(1) as f64 * 100.0,
        tally.failed(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_one_line() {
        let mut tally = Tally::new().unwrap();
        tally.warm_up = 500;
        assert_eq!(told(1, &tally, 0.5), "1s  warm-up  1000 checks/s");
        (tally.calls, tally.allowed, tally.refused) = (1, 300, 100);
        tally.latency.saturating_record(2_500_000);
        assert_eq!(
            told(2, &tally, 1.0),
            "2s  400 checks/s  refused 25.0%  errors 0  p50 2.50ms  p99 2.50ms  max 2.50ms"
        );
    }
}
