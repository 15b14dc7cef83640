//! Accepts connections, bounds their number, and serves HTTP on each until it or the service ends.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, yield_now},
    time::sleep,
};
use tracing::{debug, warn};
use weir_telemetry::LogLimit;

use crate::{
    Listener, Traffic,
    activity::Activity,
    connected::Connected,
    connection::{Accepted, Connection},
    connection_slots::ConnectionSlots,
    drain::Drain,
    ending::is_flood,
    metrics::ListenerMetrics,
    slots::Slots,
    tls::{CertificateClients, Tls},
    unread::{self, Unread},
    workers::Worker,
};

/// Backoff of `accept` when the system has no more sockets.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// Interval between log lines about failing `accept` calls, and between those about too many connections.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of connections that are accepted from the backlog when the listener closes.
const MAX_LAST_CONNECTIONS: usize = 4_096;

/// Bounds on the connections of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSettings {
    /// The listener's name in logs and metrics.
    pub name: &'static str,
    /// Whether only HTTP/2 is served, as for gRPC; otherwise HTTP/1 too.
    pub http2_only: bool,
    /// Maximum number of connections. For a further one a connection is evicted whose client has not authenticated
    /// ([`Connected::begin`]), or else one without requests in flight; if there is none, the new one is closed.
    pub max_connections: usize,
    /// Maximum number of concurrent requests of one connection.
    pub max_streams: u32,
    /// Bounds on the lifetime of connections and the rate of requests.
    pub traffic: Traffic,
}

/// The service of a listener.
pub trait Serve: Send + Sync + Sized + 'static {
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Returns the service for the requests of this connection. It admits them by [`Connected::pace`], and counts
    /// them by [`Connected::begin`], which also says whether their client has authenticated or need not.
    #[must_use]
    fn on(&self, connected: Connected) -> Self;

    /// Answers one request. `self` belongs to the connection, so that its reference count is not shared between
    /// threads.
    fn serve(self: Arc<Self>, request: Request<Incoming>) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// One listener with everything that serves it.
pub struct Server<R> {
    /// The listener.
    pub listener: Listener,
    /// The service, before its connections.
    pub service: Arc<R>,
    /// The workers.
    pub workers: Vec<Worker>,
    /// The bounds of its connections.
    pub settings: ConnectionSettings,
    /// Its metrics.
    pub metrics: ListenerMetrics,
    /// The signal of the graceful shutdown.
    pub drain: Drain,
    /// TLS, where the port has it.
    pub tls: Option<Arc<Tls>>,
    /// The clients that are identified by certificates, if any.
    pub clients: Option<Arc<dyn CertificateClients>>,
}

/// The resources that the connections of a listener share.
struct Capacity {
    slots: Arc<ConnectionSlots>,
    unread: Arc<Slots>,
    metrics: Arc<ListenerMetrics>,
    /// Limits the log lines about the maximum number of connections.
    warnings: LogLimit,
}

impl<R: Serve> Server<R> {
    /// Accepts connections until listeners close, then those in the backlog. Connections continue on their own.
    ///
    /// The first worker accepts one connection at a time, and runs its other tasks in between: a separate thread would
    /// take CPU time from calls whenever many clients connect.
    pub fn start(self) -> JoinHandle<()> {
        let runtime = self.workers.first().map_or_else(Handle::current, |first| first.runtime().clone());
        runtime.spawn(self.run())
    }

    async fn run(mut self) {
        let (most, open) = (self.settings.max_connections, self.metrics.open.clone());
        let (slots, metrics) = (ConnectionSlots::new(most, open), Arc::new(self.metrics.clone()));
        let capacity = Capacity { slots, unread: unread::of_port(), metrics, warnings: LogLimit::every(WARN_EVERY) };
        let warnings = LogLimit::every(WARN_EVERY);
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.closing() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => self.take(accepted, &capacity),
                // A client that has already disconnected must not delay the others.
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    if warnings.allows(Instant::now()) {
                        warn!(%error, "cannot accept connections");
                    }
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
            yield_now().await;
        }
        self.listener.close();
        for _ in 0..MAX_LAST_CONNECTIONS {
            match self.listener.accept_now() {
                Ok(accepted) => self.take(accepted, &capacity),
                Err(error) if is_of_one_client(&error) => {}
                Err(_) => break,
            }
        }
    }

    /// Serves a connection, if there is capacity.
    fn take(&self, accepted: Accepted, capacity: &Capacity) {
        let (listener, max_connections) = (self.settings.name, self.settings.max_connections);
        if capacity.slots.are_taken() && capacity.warnings.allows(Instant::now()) {
            warn!(listener, max_connections, "connections are evicted or rejected: max_connections are open");
        }
        let activity = Arc::new(Activity::new(self.settings.traffic.idle_timeout.0 > 0));
        let Some(slot) = capacity.slots.take(Arc::clone(&activity)) else {
            capacity.metrics.rejected.increment(1);
            return;
        };
        let Some(worker) = Worker::least_loaded(&self.workers) else { return };
        // Unix sockets do not use TLS.
        let tls = self.tls.as_ref().filter(|_| matches!(accepted, Accepted::Tcp(..)));
        let Ok(tls) = tls.map(|tls| tls.slot().map(|slot| (Arc::clone(tls), slot))).transpose() else {
            capacity.metrics.rejected.increment(1);
            return;
        };
        let metrics = Arc::clone(&capacity.metrics);
        let served = Connection {
            service: Arc::clone(&self.service),
            settings: self.settings,
            drain: self.drain.clone(),
            tls,
            clients: self.clients.clone(),
            metrics: Arc::clone(&metrics),
            activity,
            unread: Unread::new(&capacity.unread),
            slot,
            queue: worker.queue(),
        };
        worker.serve(self.drain.track(async move {
            if let Err(error) = served.serve(accepted).await {
                if is_flood(&*error) {
                    metrics.flooded.increment(1);
                }
                debug!(%error, "a connection ended");
            }
        }));
    }
}

fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, InvalidInput, NotConnected,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | InvalidInput | NotConnected
    )
}
