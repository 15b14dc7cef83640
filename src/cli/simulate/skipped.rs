//! Invalid lines that do not end a replay.

use super::{Failure, progress::Progress};
use crate::cli::out::print_error;

/// Maximum number of skipped lines that are reported one by one.
const MAX_REPORTED: u64 = 5;

/// The number of skipped lines.
#[derive(Default)]
pub(super) struct SkippedLines(u64);

impl SkippedLines {
    /// Skips a line. The first few are reported, with the reason.
    pub(super) fn note(&mut self, number: u64, why: &str, progress: &mut Progress) {
        self.0 += 1;
        if self.0 <= MAX_REPORTED {
            progress.interrupt(&format!("line {number} is skipped: {why}"));
        }
    }

    /// Reports at the end how many of `lines` were skipped.
    ///
    /// # Errors
    /// All lines were skipped.
    pub(super) fn conclude(&self, lines: u64) -> Result<(), Failure> {
        match self.0 {
            0 => Ok(()),
            all if all == lines => Err(Failure(format!("none of the {lines} lines could be parsed"))),
            some => {
                print_error(format_args!("weir: {some} of {lines} lines were skipped"));
                Ok(())
            }
        }
    }
}
