//! Accepts connections, bounds them, and serves HTTP on each until it ends or the drain does.

use std::{io, sync::Arc, time::Duration};

use axum::{Router, response::IntoResponse};
use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tower::Service as _;
use tracing::{debug, warn};

use super::{
    connection::{Accepted, Connection},
    drain::Drain,
    farewell::Connected,
    gate::Gate,
    http::problem::Problem,
    listener::Listener,
    routes,
    status::Refused,
    tls::Tls,
    watch::{Watch, given_id, tell_id},
    workers::Worker,
};
use crate::{
    auth::Access,
    settings::Traffic,
    telemetry::{metrics::ListenerMeter, trail::Surface},
};

/// How long to wait when the system has no more sockets to give.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// Most connections that are still taken, of those that wait when the listener closes.
const MAX_LAST_CONNECTIONS: usize = 4_096;

/// Bounds on the connections of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSettings {
    /// What the listener is called where something is told of it.
    pub name: &'static str,
    /// Only HTTP/2, as gRPC is; otherwise HTTP/1 too.
    pub http2_only: bool,
    /// Most connections; further ones are closed at once.
    pub max_connections: usize,
    /// Most concurrent requests of one connection.
    pub max_streams: u32,
    /// Bounds on connections in time, and on requests in number.
    pub traffic: Traffic,
}

/// What answers requests.
pub trait Serve: Send + Sync + 'static {
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static;

    /// The same for the requests of this connection.
    #[must_use]
    fn on(self, _connected: Connected) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// Answers one request. `self` is the connection's own, so that to count who holds it concerns no other thread.
    fn serve(self: Arc<Self>, request: Request<Incoming>) -> impl Future<Output = Response<Self::Body>> + Send;

    /// What a request of this path needs, where callers are known.
    fn access(path: &str) -> Access;

    /// What a request asks for.
    fn surface<B>(_request: &Request<B>) -> Surface {
        Surface::Other
    }

    /// Whether what is under this path goes on for long, so that it is to end when its caller is not known any more.
    fn lasts(_path: &str) -> bool {
        false
    }

    /// Answers a request that is refused before anybody looks at it.
    fn refuse(refused: Refused) -> Response<Self::Body>;
}

impl Serve for Router {
    type Body = axum::body::Body;

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<axum::body::Body> {
        let id = given_id(request.headers());
        let Ok(mut response) = Self::clone(&self).call(request).await;
        if response.status().as_u16() >= 400 {
            tell_id(id, response.headers_mut());
        }
        response
    }

    fn access(path: &str) -> Access {
        routes::access_of_page(path)
    }

    fn surface<B>(request: &Request<B>) -> Surface {
        routes::surface_of_page(request.method(), request.uri().path())
    }

    fn refuse(refused: Refused) -> Response<axum::body::Body> {
        Problem::from(refused).into_response()
    }
}

/// One listener with all that serves it.
pub struct Server<R> {
    /// What listens.
    pub listener: Listener,
    /// What answers.
    pub routes: R,
    /// Who does the work.
    pub workers: Vec<Worker>,
    /// The bounds.
    pub settings: ConnectionSettings,
    /// What is counted.
    pub meter: ListenerMeter,
    /// When to end.
    pub drain: Drain,
    /// How connections are encrypted, where they are.
    pub tls: Option<Arc<Tls>>,
    /// Who may call, where callers are known.
    pub gate: Option<Gate>,
    /// Who is told of requests, where anybody is.
    pub watch: Option<Arc<Watch>>,
}

/// How much the connections of a listener may be together.
struct Room {
    open: Arc<Semaphore>,
    in_flight: Option<Arc<Semaphore>>,
    meter: Arc<ListenerMeter>,
}

impl<R: Serve + Clone> Server<R> {
    /// Accepts until listeners are to close, then who waits already. The connections go on by themselves.
    pub async fn run(self) {
        let most = self.settings.traffic.max_concurrent_requests;
        let room = Room {
            open: Arc::new(Semaphore::new(self.settings.max_connections)),
            in_flight: (most > 0).then(|| Arc::new(Semaphore::new(most))),
            meter: Arc::new(self.meter.clone()),
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.closing() => break,
                accepted = accept(&self.listener) => accepted,
            };
            match accepted {
                Ok(accepted) => self.take(accepted, &room),
                // A client that has gone again is no reason to keep the others waiting.
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
        for _ in 0..MAX_LAST_CONNECTIONS {
            let Ok(Ok(accepted)) = timeout(Duration::ZERO, accept(&self.listener)).await else { break };
            self.take(accepted, &room);
        }
    }

    /// Has a connection served, where there is room.
    fn take(&self, accepted: Accepted, room: &Room) {
        let Ok(permit) = Arc::clone(&room.open).try_acquire_owned() else {
            room.meter.refused.increment(1);
            return;
        };
        let served = Connection {
            routes: self.routes.clone(),
            settings: self.settings,
            drain: self.drain.clone(),
            tls: self.tls.clone(),
            gate: self.gate.clone(),
            meter: Arc::clone(&room.meter),
            in_flight: room.in_flight.clone(),
            watch: self.watch.clone(),
        };
        let gauge = OpenGauge::new(&room.meter);
        let connection = self.drain.track(async move {
            let _held = (permit, gauge);
            if let Err(error) = served.serve(accepted).await {
                debug!(%error, "a connection ended");
            }
        });
        if let Some(worker) = Worker::least_loaded(&self.workers) {
            worker.serve(connection);
        }
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

/// Counts an open connection while it lives.
struct OpenGauge(metrics::Gauge);

impl OpenGauge {
    fn new(meter: &ListenerMeter) -> Self {
        meter.open.increment(1.0);
        Self(meter.open.clone())
    }
}

impl Drop for OpenGauge {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// Takes the next connection off this runtime, so that a worker can put it on its own.
async fn accept(listener: &Listener) -> io::Result<Accepted> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            stream.into_std().map(Accepted::Tcp)
        }
        Listener::Unix(listener, _) => listener.accept().await?.0.into_std().map(Accepted::Unix),
    }
}
