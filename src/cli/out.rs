//! Standard output and standard error.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Stdout, Write},
};

/// Standard output. A closed pipe, as in `weir … | head -1`, is ignored and does not change the exit code.
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
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(dropped),
        written => written,
    }
}

pub(super) fn print_line(text: impl Display) -> io::Result<()> {
    writeln!(Out::new(), "{text}")
}

/// Prints a line on standard error. If that is closed or its disk is full, the exit code still reports the outcome.
pub(super) fn print_error(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Replaces control characters, which end lines and control terminals, in text that clients or operators have written,
/// such as keys and reasons.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
