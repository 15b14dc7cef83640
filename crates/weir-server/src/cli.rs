//! Shared parts of the commands: their error, and the signals that interrupt them.

use std::{fmt::Display, future::pending, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The error of a command, as it is printed.
pub struct Failure(pub String);

impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// SIGINT and SIGTERM, which end the process unless they are listened to.
#[derive(Default)]
pub struct Signals(Option<[Signal; 2]>);

impl Signals {
    /// Installs the handlers: from now on these signals do not end the process.
    ///
    /// # Errors
    /// The system rejects a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self(Some([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?])))
    }

    /// Waits for the next signal, and returns its exit code.
    pub async fn next(&mut self) -> u8 {
        let Some([interrupt, terminate]) = &mut self.0 else { return pending().await };
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
        }
    }
}
