//! Reads and parses lines on a thread of its own, so that a signal can end a replay that waits for its next line, and a
//! long trace is read ahead while it is replayed.

use std::{
    io::{self, BufRead, BufReader, Read},
    thread,
};

use tokio::sync::mpsc;

use super::trace::Line;

/// Maximum number of batches that are read ahead of the replay.
const READ_AHEAD: usize = 8;
/// Maximum number of lines of a batch.
const BATCH: usize = 512;
/// Size of a read, in bytes.
const BLOCK: usize = 64 << 10;
/// Maximum length of a line, in bytes: ten times that of the longest valid request.
const MAX_LINE: usize = 1 << 20;

/// Parses lines of text.
pub trait LineParser: Send + 'static {
    /// Parses a line, whose entry may be held back until further lines are read.
    fn parse(&mut self, number: u64, text: &str, into: &mut Vec<Entry>);

    /// Adds the entries that are still held back after the last line.
    fn finish(&mut self, into: &mut Vec<Entry>);
}

/// A line, or the reason why it is not valid.
pub struct Entry {
    /// The number of the line in the text, from 1.
    pub number: u64,
    pub line: Result<Line, String>,
}

/// The parser of lines that are JSON.
pub struct Trace;

impl LineParser for Trace {
    fn parse(&mut self, number: u64, text: &str, into: &mut Vec<Entry>) {
        into.push(Entry { number, line: Line::parse(text) });
    }

    fn finish(&mut self, _: &mut Vec<Entry>) {}
}

/// Consecutive lines.
#[derive(Default)]
pub struct Batch {
    pub entries: Vec<Entry>,
    /// Bytes of the text that have been read so far.
    pub bytes_read: u64,
    /// Whether no further line has been read yet: the writer may be waiting for its answer.
    pub is_last_so_far: bool,
    /// The error that ended reading, if any.
    pub error: Option<io::Error>,
}

/// The lines of a text.
pub struct Lines(mpsc::Receiver<Batch>);

impl Lines {
    pub fn read(text: impl Read + Send + 'static, parser: impl LineParser) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        let reader = BufReader::with_capacity(BLOCK, text);
        let lines = thread::Builder::new().name("weir-trace".to_owned());
        lines.spawn(move || send_all(reader, parser, &sender))?;
        Ok(Self(receiver))
    }

    /// Returns the next batch; `None` after the last one.
    pub async fn next(&mut self) -> Option<Batch> {
        self.0.recv().await
    }
}

fn send_all(mut text: BufReader<impl Read>, mut parser: impl LineParser, sender: &mpsc::Sender<Batch>) {
    let (mut number, mut bytes_read, mut line, mut batch) = (0, 0, Vec::new(), Batch::default());
    let mut ended = false;
    while !ended {
        number += 1;
        match next_line(&mut text, &mut line) {
            Ok(0) => {
                parser.finish(&mut batch.entries);
                ended = true;
            }
            Ok(bytes) => {
                bytes_read += bytes as u64;
                parse_line(&mut parser, number, &line, &mut batch.entries);
            }
            Err(error) => (batch.error, ended) = (Some(error), true),
        }
        batch.is_last_so_far = !text.buffer().contains(&b'\n');
        if ended || batch.is_last_so_far || batch.entries.len() >= BATCH {
            batch.bytes_read = bytes_read;
            if sender.blocking_send(std::mem::take(&mut batch)).is_err() {
                return;
            }
        }
    }
}

/// Reads a line, of which at most [`MAX_LINE`] bytes and one more are kept. Returns its length; 0: the text has ended.
fn next_line(text: &mut BufReader<impl Read>, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    let bytes = text.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', line)?;
    let rest = if bytes > MAX_LINE && line.last() != Some(&b'\n') { text.skip_until(b'\n')? } else { 0 };
    Ok(bytes + rest)
}

fn parse_line(parser: &mut impl LineParser, number: u64, line: &[u8], into: &mut Vec<Entry>) {
    let mut wrong = |why: &str| into.push(Entry { number, line: Err(why.to_owned()) });
    if line.len() > MAX_LINE {
        return wrong("longer than 1 MiB");
    }
    match str::from_utf8(line).map(str::trim) {
        Ok("") => {}
        Ok(text) => parser.parse(number, text, into),
        Err(_) => wrong("not UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lengths;

    impl LineParser for Lengths {
        fn parse(&mut self, number: u64, text: &str, into: &mut Vec<Entry>) {
            into.push(Entry { number, line: Err(text.len().to_string()) });
        }

        fn finish(&mut self, _: &mut Vec<Entry>) {}
    }

    fn entries(text: Vec<u8>) -> Vec<(u64, String)> {
        let mut lines = Lines::read(io::Cursor::new(text), Lengths).unwrap();
        let mut entries = Vec::new();
        while let Some(batch) = lines.0.blocking_recv() {
            assert!(batch.entries.len() <= BATCH && batch.error.is_none());
            entries.extend(batch.entries.into_iter().map(|entry| (entry.number, entry.line.unwrap_err())));
        }
        entries
    }

    #[test]
    fn lines_are_complete_and_numbered() {
        let text: String = (1..5_000).map(|length| "x".repeat(length % 97) + "\n").collect();
        let expected = (1..5_000).filter(|length| length % 97 > 0).map(|length| (length, (length % 97).to_string()));
        assert_eq!(entries(text.into_bytes()), expected.collect::<Vec<_>>());
        assert_eq!(entries(b"abc\n\nab".to_vec()), [(1, "3".to_owned()), (3, "2".to_owned())]);
    }

    #[test]
    fn an_oversized_or_invalid_line_does_not_affect_the_next() {
        let longest = "x".repeat(MAX_LINE - 1);
        let text = format!("{longest}\n{longest}{longest}{longest}\nab\n{longest}xy");
        let long = "longer than 1 MiB".to_owned();
        let expected = [(1, (MAX_LINE - 1).to_string()), (2, long.clone()), (3, "2".to_owned()), (4, long)];
        assert_eq!(entries(text.into_bytes()), expected);
        assert_eq!(entries(b"a\xffb\nab".to_vec()), [(1, "not UTF-8".to_owned()), (2, "2".to_owned())]);
    }
}
