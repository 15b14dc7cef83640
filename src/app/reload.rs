//! What was loaded from files is loaded again when they have changed, or when the operator asks for it by SIGHUP.

use std::{future::pending, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};
use tracing::error;
use weir_settings::Watch;

/// Files to load again. Made before they are loaded first, so that no change and no signal is missed.
pub struct Reload {
    watch: Watch,
    hangup: Option<Signal>,
}

impl Reload {
    /// Of the files of this watch.
    pub fn new(watch: Watch) -> Self {
        Self { watch, hangup: signal(SignalKind::hangup()).ok() }
    }

    /// Looks at the files every `poll`, or less often where they are very many, for ever. `load` puts what they say in force, or
    /// reports why it does not.
    pub async fn run(self, poll: Duration, mut load: impl FnMut() + Send + 'static) {
        let Self { mut watch, mut hangup } = self;
        loop {
            let asked = tokio::select! {
                () = next(&mut hangup) => true,
                () = sleep(watch.pause(poll)) => false,
            };
            let looked = tokio::task::spawn_blocking(move || {
                let changed = watch.settled_change();
                if asked {
                    watch.load_anyway();
                }
                if changed || asked {
                    load();
                }
                (watch, load)
            });
            match looked.await {
                Ok(back) => (watch, load) = back,
                Err(cause) => {
                    error!(%cause, "files are not watched any more");
                    return;
                }
            }
        }
    }
}

/// Waits for the signal, for ever where there is none.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}
