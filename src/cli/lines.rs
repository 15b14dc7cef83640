//! The lines of a trace, and what may end a story before its last one.

use std::{
    io::{self, BufRead, BufReader, Read},
    thread,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

/// Most lines that are read before they are told.
const READ_AHEAD: usize = 64;

/// One line of a trace.
pub struct TraceLine {
    pub text: String,
    /// Nothing that was read is behind it: whoever wrote it may be waiting for its answer.
    pub is_last_so_far: bool,
}

/// The lines of a trace, read on a thread of their own, so that a signal can end a story that waits for its next line.
pub struct Lines(mpsc::Receiver<io::Result<TraceLine>>);

impl Lines {
    pub fn read(trace: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        thread::Builder::new().name("weir-trace".to_owned()).spawn(move || send_all(BufReader::new(trace), &sender))?;
        Ok(Self(receiver))
    }

    /// The next one; `None` behind the last. After an error there are no more.
    pub async fn next(&mut self) -> Option<io::Result<TraceLine>> {
        self.0.recv().await
    }
}

fn send_all(mut trace: BufReader<impl Read>, sender: &mpsc::Sender<io::Result<TraceLine>>) {
    loop {
        let mut text = String::new();
        let line = match trace.read_line(&mut text) {
            Ok(0) => return,
            Ok(_) => Ok(TraceLine { text, is_last_so_far: trace.buffer().is_empty() }),
            Err(error) => Err(error),
        };
        let is_last = line.is_err();
        if sender.blocking_send(line).is_err() || is_last {
            return;
        }
    }
}

/// SIGINT and SIGTERM, which do not end the process as long as this is there.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one, as the exit code that tells of it.
    pub async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}
