//! What may end a command before it is done.

use std::{future::pending, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM.
pub enum Signals {
    /// They end the process, which leaves nothing behind.
    End,
    /// They are for the command to hear.
    Heard { interrupt: Signal, terminate: Signal },
}

impl Signals {
    /// From here on they do not end the process as long as this is there.
    pub fn listen() -> io::Result<Self> {
        Ok(Self::Heard { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one, as the exit code that tells of it.
    pub async fn next(&mut self) -> u8 {
        let Self::Heard { interrupt, terminate } = self else { return pending().await };
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
        }
    }
}
