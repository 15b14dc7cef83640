//! Writes the log to standard error on a separate thread: a write blocks while the reader of a full pipe stalls.

use std::{
    io::{self, Write},
    mem,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use weir_telemetry::{Render, text::single};

use super::controls::escape_controls;

/// A line is lost when it meets this many bytes that wait to be written.
const MAX_WAITING_BYTES: usize = 1 << 20;
/// Maximum wait for the last lines when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the thread was started.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Number of lines that were lost.
static LOST: AtomicU64 = AtomicU64::new(0);
static QUEUE: Mutex<Queue> = Mutex::new(Queue { lines: Vec::new(), is_writing: false });
/// Notified when lines arrive, and when all are written.
static CHANGED: Condvar = Condvar::new();

/// Lines that wait to be written.
struct Queue {
    lines: Vec<u8>,
    /// Whether lines taken from the queue are being written.
    is_writing: bool,
}

/// Starts the thread that writes the lines.
pub(super) fn start() -> io::Result<()> {
    thread::Builder::new().name("weir-log".to_owned()).spawn(write_lines)?;
    STARTED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Writes a last line after all others, and waits for them. Without a log it is written directly; if standard error is
/// closed, the exit code still tells the outcome.
pub(super) fn end_with(line: &str) {
    if STARTED.load(Ordering::Relaxed) {
        let _ = QueuedLine.write(format!("{line}\n").as_bytes());
        flush();
    } else {
        let _ = writeln!(io::stderr(), "{}", escape_controls(line));
    }
}

fn write_lines() {
    loop {
        let mut queue = QUEUE.lock();
        queue.is_writing = false;
        CHANGED.notify_all();
        CHANGED.wait_while(&mut queue, |queue| queue.lines.is_empty());
        queue.is_writing = true;
        let lines = mem::take(&mut queue.lines);
        drop(queue);
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            // The log may go to a closed pipe or to a full disk.
            if io::stderr().write_all(line).is_err() {
                LOST.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Waits until all lines are written, for a bounded time.
pub(super) fn flush() {
    let is_unfinished = |queue: &mut Queue| queue.is_writing || !queue.lines.is_empty();
    CHANGED.wait_while_for(&mut QUEUE.lock(), is_unfinished, FLUSH_TIMEOUT);
}

/// Appends each line to the queue, without control characters. The subscriber passes one whole line per call.
pub(super) struct QueuedLine;

impl Write for QueuedLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // JSON leaves those above ASCII as they are.
        let text = str::from_utf8(line).map(escape_controls);
        let mut queue = QUEUE.lock();
        if queue.lines.len() < MAX_WAITING_BYTES {
            queue.lines.extend_from_slice(text.as_deref().map_or(line, str::as_bytes));
            CHANGED.notify_all();
        } else {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) struct LogMetrics;

impl Render for LogMetrics {
    fn render(&self, out: &mut String) {
        let help = "Log lines lost because standard error could not be written or was not read.";
        single(out, "weir_log_lines_lost_total", "counter", help, LOST.load(Ordering::Relaxed) as f64);
    }
}
