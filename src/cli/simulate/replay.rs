//! Replays the lines of a trace in order.

use std::{io::Write, pin::pin};

use futures_util::FutureExt;

use super::{Failure, lines::Lines, progress::Progress, skipped::SkippedLines, store::SimulationStore, trace::Line};

/// What a trace is replayed against.
pub(super) trait ReplayTarget {
    type Store: SimulationStore;

    /// Replays a line, and prints its result where that is wanted. Returns why the replay cannot continue, if so.
    ///
    /// # Errors
    /// The result cannot be written.
    async fn replay(&mut self, number: u64, line: Line, out: &mut dyn Write) -> std::io::Result<Option<String>>;

    /// Prints the report. Returns the exit code.
    ///
    /// # Errors
    /// It cannot be written.
    fn conclude(&self, out: &mut dyn Write) -> std::io::Result<u8>;

    /// The stores that it uses.
    fn stores(&self) -> Vec<&Self::Store>;
}

/// The replay of one trace.
pub(super) struct Replay {
    pub lines: Lines,
    /// Where invalid lines are reported and skipped; `None`: an invalid line ends the replay.
    pub skipped: Option<SkippedLines>,
    pub progress: Progress,
}

/// How a replay ended.
pub(super) enum End {
    /// After its last line.
    Complete,
    /// By a signal between two lines, with the exit code.
    Broken(u8),
}

impl Replay {
    /// Reports on the lines themselves, at their end.
    ///
    /// # Errors
    /// None of them could be parsed.
    pub(super) fn conclude(&self) -> Result<(), Failure> {
        self.skipped.as_ref().map_or(Ok(()), |skipped| skipped.conclude(self.progress.lines()))
    }

    /// Replays all lines, or those until `broken` is done.
    ///
    /// # Errors
    /// An invalid line, where none is skipped, or one that the store failed to decide: its number and why.
    pub(super) async fn run(
        &mut self,
        target: &mut impl ReplayTarget,
        out: &mut dyn Write,
        broken: impl Future<Output = u8>,
    ) -> Result<End, Failure> {
        let (mut broken, mut number) = (pin!(broken), 0);
        loop {
            let batch = tokio::select! {
                biased;
                code = &mut broken => return Ok(End::Broken(code)),
                batch = self.lines.next() => batch,
            };
            let Some(batch) = batch else { return Ok(End::Complete) };
            let lines = batch.entries.len();
            for entry in batch.entries {
                // A store far away takes its time for a batch.
                if let Some(code) = broken.as_mut().now_or_never() {
                    return Ok(End::Broken(code));
                }
                number = entry.number;
                let failed = match (entry.line, &mut self.skipped) {
                    (Ok(line), _) => target.replay(number, line, out).await?,
                    (Err(why), Some(skipped)) => {
                        skipped.note(number, &why, &mut self.progress);
                        None
                    }
                    (Err(why), None) => Some(why),
                };
                if let Some(why) = failed {
                    return Err(Failure(format!("line {number}: {why}")));
                }
            }
            if let Some(error) = batch.broken {
                return Err(Failure(format!("after line {number}: {error}")));
            }
            self.progress.came_to(lines as u64, batch.bytes_read);
            // Whoever writes a line and waits for its answer gets it.
            if batch.is_last_so_far {
                out.flush()?;
            }
        }
    }
}
