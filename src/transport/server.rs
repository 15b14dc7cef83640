//! Accepts connections, bounds them, and serves HTTP on each until it ends or the drain does.

use std::{
    convert::Infallible,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::sleep,
};
use tokio_io_timeout::TimeoutStream;
use tower::Service as _;
use tracing::{debug, warn};

use super::{drain::Drain, listener::Listener, workers::Worker};
use crate::telemetry::metrics::ListenerMeter;

/// How long to wait when the system has no more sockets to give.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// How long a client may take for the head of an HTTP/1 request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may hold a connection without ever asking anything.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection that was told to go may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client may let a write wait that its socket has no room for.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a silent HTTP/2 connection is asked whether it lives, and how long it may take to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// Largest head of a request.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Most bytes that wait in a connection's stream for a reader that is slow.
const MAX_SEND_BUFFER_BYTES: usize = 256 << 10;

/// Bounds on the connections of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSettings {
    /// Only HTTP/2, as gRPC is; otherwise HTTP/1 too.
    pub http2_only: bool,
    /// Most connections; further ones are closed at once.
    pub max_connections: usize,
    /// Most concurrent requests of one connection.
    pub max_streams: u32,
}

/// What answers requests.
pub trait Serve: Send + Sync + 'static {
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    /// Answers one request. `self` is the connection's own, so that to count who holds it concerns no other thread.
    fn serve(self: Arc<Self>, request: Request<Incoming>) -> impl Future<Output = Response<Self::Body>> + Send;
}

impl Serve for Router {
    type Body = axum::body::Body;

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<axum::body::Body> {
        let Ok(response) = Self::clone(&self).call(request).await;
        response
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
}

/// An accepted connection, not yet bound to a runtime.
enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl<R: Serve + Clone> Server<R> {
    /// Accepts until the drain begins. The connections go on by themselves.
    pub async fn run(self) {
        let open = Arc::new(Semaphore::new(self.settings.max_connections));
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.begun() => return,
                accepted = accept(&self.listener) => accepted,
            };
            let accepted = match accepted {
                Ok(accepted) => accepted,
                // A client that has gone again is no reason to keep the others waiting.
                Err(error) if is_of_one_client(&error) => continue,
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
                self.meter.refused.increment(1);
                continue;
            };
            let (routes, settings, drain) = (Arc::new(self.routes.clone()), self.settings, self.drain.clone());
            let gauge = OpenGauge::new(&self.meter);
            let connection = self.drain.track(async move {
                let _held = (permit, gauge);
                if let Err(error) = serve(accepted, routes, settings, drain).await {
                    debug!(%error, "a connection ended");
                }
            });
            if let Some(worker) = Worker::least_loaded(&self.workers) {
                worker.serve(connection);
            }
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

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn serve<R: Serve>(accepted: Accepted, routes: Arc<R>, settings: ConnectionSettings, drain: Drain) -> Served {
    match accepted {
        Accepted::Tcp(stream) => http(tokio::net::TcpStream::from_std(stream)?, routes, settings, drain).await,
        Accepted::Unix(stream) => http(tokio::net::UnixStream::from_std(stream)?, routes, settings, drain).await,
    }
}

async fn http<I, R>(io: I, routes: Arc<R>, settings: ConnectionSettings, drain: Drain) -> Served
where
    R: Serve,
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE.0)
        .keep_alive_timeout(KEEPALIVE.1)
        .max_concurrent_streams(settings.max_streams)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES);
    if settings.http2_only {
        // Callers over gRPC do not ask for the date.
        builder.http2().auto_date_header(false);
        builder = builder.http2_only();
    }
    let asked = Arc::new(AtomicBool::new(false));
    let service = {
        let asked = Arc::clone(&asked);
        service_fn(move |request| {
            asked.store(true, Ordering::Relaxed);
            let answer = Arc::clone(&routes).serve(request);
            async { Ok::<_, Infallible>(answer.await) }
        })
    };
    let mut io = TimeoutStream::new(io);
    io.set_write_timeout(Some(WRITE_TIMEOUT));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(io)), service));
    let idle = async {
        sleep(FIRST_REQUEST_TIMEOUT).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        result = connection.as_mut() => return result,
        () = drain.begun() => {}
        () = idle => {}
    }
    connection.as_mut().graceful_shutdown();
    let end = async {
        // Nothing is under way where nothing was asked, unless it comes before the goodbye is heard.
        if !asked.load(Ordering::Relaxed) {
            sleep(GOODBYE_TIMEOUT).await;
        }
        if asked.load(Ordering::Relaxed) {
            drain.cut().await;
        }
    };
    tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = end => Ok(()),
    }
}
