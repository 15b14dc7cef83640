//! Graceful shutdown, in steps: listeners close; connections and streams finish on request; the rest is cut.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::sync::SetOnce;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use weir_settings::Time;

/// Settings of the graceful shutdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownSettings {
    /// Time for which the service continues serving with failing readiness, so that load balancers stop sending
    /// requests first.
    pub delay: Time,
    /// Timeout for calls in flight to finish before they are cut.
    pub timeout: Time,
}

impl Default for ShutdownSettings {
    fn default() -> Self {
        Self { delay: Time::seconds(1), timeout: Time::seconds(10) }
    }
}

/// The signals of the graceful shutdown to listeners and connections, with the count of open connections.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    close: CancellationToken,
    /// Cheaper to read than a token: streams read it for each message.
    started: Arc<SetOnce<()>>,
    force_close: CancellationToken,
    connections: TaskTracker,
}

impl Drain {
    /// Whether connections have been asked to finish.
    pub(crate) fn has_started(&self) -> bool {
        self.started.initialized()
    }

    /// Closes the listeners. This comes first, so that the next connection of a client that receives GOAWAY is not
    /// accepted here and then dropped unserved.
    pub fn close(&self) {
        self.close.cancel();
    }

    /// Waits until listeners must close.
    pub(crate) async fn closing(&self) {
        self.close.cancelled().await;
    }

    /// Waits until connections must finish.
    pub(crate) async fn started(&self) {
        self.started.wait().await;
    }

    /// Waits until the remaining connections are cut.
    pub(crate) async fn force_closing(&self) {
        self.force_close.cancelled().await;
    }

    /// Counts a connection until its future completes.
    pub(crate) fn track<F: Future>(&self, connection: F) -> impl Future<Output = F::Output> + use<F> {
        self.connections.track_future(connection)
    }

    /// Asks connections to finish, waits at most `timeout` for all of them, then cuts the rest. Listeners must be closed
    /// before ([`Self::close`]). Returns `true` if none had to be cut.
    pub async fn finish(&self, timeout: Duration) -> bool {
        self.started.set(()).ok();
        self.connections.close();
        let clean = tokio::time::timeout(timeout, self.connections.wait()).await.is_ok();
        self.force_close.cancel();
        self.connections.wait().await;
        clean
    }
}
