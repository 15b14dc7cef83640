//! The end of service, in steps: listeners close; then every connection and stream can see that it is to finish, and that it is cut.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use weir_settings::Time;

/// How the service ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownSettings {
    /// How long to go on serving after health says no, so that balancers look elsewhere first.
    pub delay: Time,
    /// How long calls under way may take to finish before they are cut.
    pub timeout: Time,
}

impl Default for ShutdownSettings {
    fn default() -> Self {
        Self { delay: Time::seconds(1), timeout: Time::seconds(10) }
    }
}

/// Tells listeners to close and connections to finish, and counts those that have not.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    /// Cheaper to look at than the token, which is for waiting.
    begun: Arc<AtomicBool>,
    close: CancellationToken,
    begin: CancellationToken,
    cut: CancellationToken,
    connections: TaskTracker,
}

impl Drain {
    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Closes listeners. It comes first, so that a client that receives GOAWAY finds no listener that takes its next
    /// connection and then drops it unheard.
    pub fn close(&self) {
        self.close.cancel();
    }

    /// Waits until listeners are to close.
    pub(crate) async fn closing(&self) {
        self.close.cancelled().await;
    }

    /// Waits until it begins.
    pub(crate) async fn begun(&self) {
        self.begin.cancelled().await;
    }

    /// Waits until what is left is to be cut.
    pub(crate) async fn cut(&self) {
        self.cut.cancelled().await;
    }

    /// Counts a connection until the future is done.
    pub(crate) fn track<F: Future>(&self, connection: F) -> impl Future<Output = F::Output> + use<F> {
        self.connections.track_future(connection)
    }

    /// Begins, waits at most `timeout` for all connections to finish, then cuts the rest. `true`: none had to be cut.
    pub async fn finish(&self, timeout: Duration) -> bool {
        self.close.cancel();
        self.begun.store(true, Ordering::Relaxed);
        self.begin.cancel();
        self.connections.close();
        let clean = tokio::time::timeout(timeout, self.connections.wait()).await.is_ok();
        self.cut.cancel();
        self.connections.wait().await;
        clean
    }
}
