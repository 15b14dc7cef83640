//! Lines that cannot be read, where that does not end a story.

use super::{Failure, progress::Progress};

/// How many of them are told one by one.
const MAX_TOLD: u64 = 5;

/// What was passed over.
#[derive(Default)]
pub struct PassedOver(u64);

impl PassedOver {
    /// Passes over a line. The first few are told, with the reason.
    pub fn note(&mut self, number: u64, why: &str, progress: &mut Progress) {
        self.0 += 1;
        if self.0 <= MAX_TOLD {
            progress.interrupt(&format!("line {number} is passed over: {why}"));
        }
    }

    /// Says at the end how many there were among `lines`.
    ///
    /// # Errors
    /// All of them.
    pub fn conclude(&self, lines: u64) -> Result<(), Failure> {
        match self.0 {
            0 => Ok(()),
            all if all == lines => Err(Failure(format!("none of the {lines} lines could be read"))),
            some => {
                eprintln!("weir: {some} of {lines} lines were passed over");
                Ok(())
            }
        }
    }
}
