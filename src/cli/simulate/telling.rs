//! Telling the lines of a story, one after the other, to whoever listens.

use std::{io::Write, pin::pin};

use futures_util::FutureExt;

use super::{Failure, lines::Lines, passed_over::PassedOver, place::Place, progress::Progress, trace::Line};

/// Whoever is told a story.
pub trait Listener {
    type Place: Place;

    /// Hears a line, and answers it where that is wanted. Returns why the story cannot go on, if so.
    ///
    /// # Errors
    /// The answer cannot be written.
    async fn hear(&mut self, number: u64, line: Line, out: &mut dyn Write) -> std::io::Result<Option<String>>;

    /// Says what came of it. Returns the exit code.
    ///
    /// # Errors
    /// That cannot be written.
    fn conclude(&self, out: &mut dyn Write) -> std::io::Result<u8>;

    /// Where its counts live.
    fn places(&self) -> Vec<&Self::Place>;
}

/// How a story is told.
pub struct Telling {
    pub lines: Lines,
    /// What becomes of lines that are none; `None`: such a line ends the story.
    pub passed_over: Option<PassedOver>,
    pub progress: Progress,
}

/// How a story came to its end.
pub enum End {
    /// It was told to its last line.
    Complete,
    /// Something ended it between two lines, for which this is the exit code.
    Broken(u8),
}

impl Telling {
    /// What is to be said of the lines themselves, at their end.
    ///
    /// # Errors
    /// None of them could be read.
    pub fn conclude(&self) -> Result<(), Failure> {
        self.passed_over.as_ref().map_or(Ok(()), |passed_over| passed_over.conclude(self.progress.lines()))
    }

    /// Tells all lines, or those until `broken` is done.
    ///
    /// # Errors
    /// A line that is none, where none is passed over, or one that the store has no answer to: its number and why.
    pub async fn tell(
        &mut self,
        listener: &mut impl Listener,
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
                let failed = match (entry.line, &mut self.passed_over) {
                    (Ok(line), _) => listener.hear(number, line, out).await?,
                    (Err(why), Some(passed_over)) => {
                        passed_over.note(number, &why, &mut self.progress);
                        None
                    }
                    (Err(why), None) => Some(why),
                };
                if let Some(why) = failed {
                    return Err(Failure(format!("line {number}: {why}")));
                }
            }
            if let Some(error) = batch.broken {
                return Err(Failure(format!("behind line {number}: {error}")));
            }
            self.progress.came_to(lines as u64, batch.bytes_read);
            // Whoever writes a line and waits for its answer gets it.
            if batch.is_last_so_far {
                out.flush()?;
            }
        }
    }
}
