//! Replays the lines of a trace in order.

use std::{io::Write, pin::pin};

use futures_util::FutureExt;

use super::{Failure, lines::Lines, progress::Progress, skipped::SkippedLines, trace::Line};
use crate::cli::out::{is_closed, on_one_line};

/// The target of a replay: a simulation or a comparison.
pub(super) trait ReplayTarget {
    /// Replays a line, and prints its result if requested. Returns a reason if the replay cannot continue.
    ///
    /// # Errors
    /// The result cannot be written.
    async fn replay(&mut self, number: u64, line: Line, out: &mut dyn Write) -> std::io::Result<Option<String>>;

    /// Prints the report, and returns the exit code.
    ///
    /// # Errors
    /// The report cannot be written.
    fn conclude(&self, out: &mut dyn Write) -> std::io::Result<u8>;
}

/// The replay of one trace.
pub(super) struct Replay {
    pub lines: Lines,
    /// Reports and skips invalid lines; `None`: an invalid line ends the replay.
    pub skipped: Option<SkippedLines>,
    pub progress: Progress,
}

/// The end of a replay.
pub(super) enum End {
    /// After its last line, or after the reader of its output has ended.
    Complete,
    /// Interrupted by a signal between two lines, with the exit code.
    Interrupted(u8),
}

impl Replay {
    /// Reports the skipped lines, at the end of the replay.
    ///
    /// # Errors
    /// No line could be parsed.
    pub(super) fn conclude(&self) -> Result<(), Failure> {
        self.skipped.as_ref().map_or(Ok(()), |skipped| skipped.conclude(self.progress.lines()))
    }

    /// Replays all lines, or those until `interrupted` completes.
    ///
    /// # Errors
    /// An invalid line, unless invalid lines are skipped, or a line that the store failed to decide: its number and the
    /// reason.
    pub(super) async fn run(
        &mut self,
        target: &mut impl ReplayTarget,
        out: &mut dyn Write,
        interrupted: impl Future<Output = u8>,
    ) -> Result<End, Failure> {
        let (mut interrupted, mut number) = (pin!(interrupted), 0);
        loop {
            let batch = tokio::select! {
                biased;
                code = &mut interrupted => return Ok(End::Interrupted(code)),
                batch = self.lines.next() => batch,
            };
            let Some(batch) = batch else { return Ok(End::Complete) };
            let lines = batch.entries.len();
            for entry in batch.entries {
                // A remote store takes a while for a batch.
                if let Some(code) = interrupted.as_mut().now_or_never() {
                    return Ok(End::Interrupted(code));
                }
                if is_closed() {
                    return Ok(End::Complete);
                }
                number = entry.number;
                let failed = match (entry.line, &mut self.skipped) {
                    (Ok(line), _) => target.replay(number, line, out).await?,
                    (Err(why), Some(skipped)) => {
                        skipped.note(number, &on_one_line(&why), &mut self.progress);
                        None
                    }
                    (Err(why), None) => Some(on_one_line(&why).into_owned()),
                };
                if let Some(why) = failed {
                    return Err(Failure(format!("line {number}: {why}")));
                }
            }
            if let Some(error) = batch.error {
                return Err(Failure(format!("after line {number}: {error}")));
            }
            self.progress.advance(lines as u64, batch.bytes_read);
            // A program that writes a line and waits for its answer gets it.
            if batch.is_last_so_far {
                out.flush()?;
            }
        }
    }
}
