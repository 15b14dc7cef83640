//! The signals of a service: SIGTERM and SIGINT end it, SIGHUP reloads its files.

use std::{io, thread, time::Duration};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{Instant, timeout_at},
};
use tracing::warn;

use crate::telemetry;

/// The exit code after a second signal.
const EXIT_FORCED: i32 = 4;
/// Signals within this time count as one: `timeout` of coreutils signals the process and then its group.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// SIGHUP before the service receives signals. It is handled before the settings are read: systemd takes a service that
/// a hangup ends for one that has ended as it should, and does not restart it.
pub(super) struct EarlyHangups {
    runtime: Runtime,
    hangup: Signal,
}

impl EarlyHangups {
    /// Installs the handler: from now on the signal does not end the process.
    pub(super) fn listen() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let hangup = {
            let _within = runtime.enter();
            // A write beyond the limit of a file's size fails then, and does not end the process.
            let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
            signal(SignalKind::hangup())?
        };
        Ok(Self { runtime, hangup })
    }
}

/// SIGTERM and SIGINT, received on a separate thread, which nothing that hangs elsewhere can block. A second signal
/// ends the process there, unless it arrives within [`DEBOUNCE`] of the first.
pub(super) struct StopSignals(watch::Receiver<&'static str>);

impl StopSignals {
    /// Installs the handlers: from now on the signals do not end the process. Also returns the hangups: each changes
    /// the channel, early ones too.
    pub(super) fn listen(early: EarlyHangups) -> io::Result<(Self, watch::Receiver<()>)> {
        let EarlyHangups { runtime, mut hangup } = early;
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
        let (requests, hangups) = watch::channel(());
        let listen = async move {
            sender.send_replace(next().await);
            let debounce_end = Instant::now() + DEBOUNCE;
            while timeout_at(debounce_end, next()).await.is_ok() {}
            next().await;
            exit_immediately();
        };
        let forward = async move {
            while hangup.recv().await.is_some() {
                requests.send_replace(());
            }
        };
        let both = async move { tokio::join!(listen, forward) };
        thread::Builder::new().name("weir-signals".to_owned()).spawn(move || runtime.block_on(both))?;
        Ok((Self(first), hangups))
    }

    /// Waits for the first signal, and returns its name.
    pub(super) async fn first(&mut self) -> &'static str {
        match self.0.wait_for(|name| !name.is_empty()).await {
            Ok(name) => *name,
            // The thread has died: no other signal can be received.
            Err(_) => "signals cannot be received",
        }
    }
}

/// Ends the process, regardless of its other threads.
fn exit_immediately() -> ! {
    warn!("second signal: ending at once");
    telemetry::tracing::flush();
    std::process::exit(EXIT_FORCED)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn early_hangups_request_a_reload() {
        let early = EarlyHangups::listen().unwrap();
        kill_process(getpid(), Signal::HUP).unwrap();
        let (_stop, mut hangups) = StopSignals::listen(early).unwrap();
        timeout(Duration::from_secs(60), hangups.changed()).await.expect("it is forwarded").unwrap();
        kill_process(getpid(), Signal::HUP).unwrap();
        timeout(Duration::from_secs(60), hangups.changed()).await.expect("so is a later one").unwrap();
    }
}
