//! Signals that end a command early.

use std::{future::pending, io, sync::mpsc, thread, time::Duration};

use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};
use tracing::warn;

/// The exit code after a second signal.
const ENDED_AT_ONCE: i32 = 4;
/// How long a log line of a process that is to end at once may take.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// SIGINT and SIGTERM.
pub(super) enum Signals {
    /// They end the process, which leaves nothing behind.
    End,
    /// They are for the command to hear.
    Heard { interrupt: Signal, terminate: Signal },
}

impl Signals {
    /// From here on they do not end the process as long as this is there.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self::Heard { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one, as the exit code that tells of it.
    pub(super) async fn next(&mut self) -> u8 {
        let Self::Heard { interrupt, terminate } = self else { return pending().await };
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
        }
    }
}

/// SIGTERM and SIGINT of a service, heard on a thread of its own, which nothing that hangs elsewhere can hold up. The second
/// one ends the process there.
pub(super) struct StopSignals(watch::Receiver<&'static str>);

impl StopSignals {
    /// From here on they do not end the process.
    pub(super) fn listen() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (mut terminate, mut interrupt) = {
            let _within = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let mut next = async move || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let (sender, first) = watch::channel("");
        let listen = async move {
            sender.send_replace(next().await);
            next().await;
            end_at_once();
        };
        thread::Builder::new().name("weir-signals".to_owned()).spawn(move || runtime.block_on(listen))?;
        Ok(Self(first))
    }

    /// Waits for the first one: its name.
    pub(super) async fn first(&mut self) -> &'static str {
        match self.0.wait_for(|name| !name.is_empty()).await {
            Ok(name) => *name,
            // Its thread has died: nothing else can ask for the end.
            Err(_) => "signals cannot be received",
        }
    }
}

/// Ends the process whatever its other threads do.
fn end_at_once() -> ! {
    // On another thread, as standard error may hang too.
    let (done, logged) = mpsc::channel::<()>();
    let log = thread::Builder::new().spawn(move || {
        warn!("second signal: ending at once");
        drop(done);
    });
    if log.is_ok() {
        // It ends when the line is written, or too late.
        let _ = logged.recv_timeout(LAST_WORDS);
    }
    std::process::exit(ENDED_AT_ONCE)
}
