//! What commands have in common: why one failed, and the signals that end it early.

use std::{fmt::Display, future::pending, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Why a command failed, as it is printed.
pub struct Failure(pub String);

impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// SIGINT and SIGTERM. By default they end the process.
#[derive(Default)]
pub struct Signals(Option<[Signal; 2]>);

impl Signals {
    /// From here on they do not end the process.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self(Some([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?])))
    }

    /// Waits for the next one, and returns its exit code.
    pub async fn next(&mut self) -> u8 {
        let Some([interrupt, terminate]) = &mut self.0 else { return pending().await };
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
        }
    }
}
