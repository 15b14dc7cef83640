//! Invalid lines, where they do not end a replay.

use super::{Failure, progress::Progress};

/// How many of them are reported one by one.
const MAX_TOLD: u64 = 5;

/// The skipped lines.
#[derive(Default)]
pub(super) struct SkippedLines(u64);

impl SkippedLines {
    /// Skips a line. The first few are reported, with the reason.
    pub(super) fn note(&mut self, number: u64, why: &str, progress: &mut Progress) {
        self.0 += 1;
        if self.0 <= MAX_TOLD {
            progress.interrupt(&format!("line {number} is skipped: {why}"));
        }
    }

    /// Says at the end how many there were among `lines`.
    ///
    /// # Errors
    /// All of them.
    pub(super) fn conclude(&self, lines: u64) -> Result<(), Failure> {
        match self.0 {
            0 => Ok(()),
            all if all == lines => Err(Failure(format!("none of the {lines} lines could be parsed"))),
            some => {
                eprintln!("weir: {some} of {lines} lines were skipped");
                Ok(())
            }
        }
    }
}
