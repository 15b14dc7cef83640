//! Signals that end a service.

use std::{io, sync::mpsc, thread, time::Duration};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, timeout_at},
};
use tracing::warn;

/// The exit code after a second signal.
const ENDED_AT_ONCE: i32 = 4;
/// Signals within this time are of one stop: `timeout` of coreutils sends its signal to the process and to its group.
const ONE_STOP: Duration = Duration::from_millis(100);
/// How long a log line of a process that is to end at once may take.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// SIGTERM and SIGINT of a service, heard on a thread of its own, which nothing that hangs elsewhere can hold up. A second
/// one ends the process there, unless it comes at once.
pub(super) struct StopSignals(watch::Receiver<&'static str>);

impl StopSignals {
    /// From here on they do not end the process.
    pub(super) fn listen() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
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
            let one_stop = Instant::now() + ONE_STOP;
            while timeout_at(one_stop, next()).await.is_ok() {}
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
