//! Standard output and standard error.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Stdout, Write},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::telemetry::controls::escape_controls;
pub(super) use crate::telemetry::controls::on_one_line;

/// Whether a write has met a closed pipe.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output is a pipe whose reader has ended: a long command ends early.
pub(super) fn is_closed() -> bool {
    CLOSED.load(Relaxed)
}

/// Standard output. A closed pipe, as in `weir … | head -1`, is not an error and does not change the exit code.
pub(super) struct Out(Stdout);

impl Out {
    pub(super) fn new() -> Self {
        Self(io::stdout())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(self.0.flush(), ())
    }
}

fn unless_closed<T>(written: io::Result<T>, dropped: T) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            CLOSED.store(true, Relaxed);
            Ok(dropped)
        }
        written => written,
    }
}

/// Prints a line, or several. Control characters, as in the keys of clients, are escaped.
pub(super) fn print_line(text: impl Display) -> io::Result<()> {
    print_to(&mut Out::new(), text)
}

/// Prints a line, or several, to this output.
pub(super) fn print_to(out: &mut dyn Write, text: impl Display) -> io::Result<()> {
    writeln!(out, "{}", escape_controls(&text.to_string()))
}

/// Prints a line on standard error. If that is closed or its disk is full, the exit code still reports the outcome.
pub(super) fn print_error(text: impl Display) {
    let _ = print_to(&mut io::stderr(), text);
}
