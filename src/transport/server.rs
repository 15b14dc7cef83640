//! Accepts connections, bounds them, and serves HTTP on each until it ends or the drain does.

use std::{
    convert::Infallible,
    future::pending,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, response::IntoResponse};
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
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::Service as _;
use tracing::{debug, warn};

use super::{
    access,
    drain::Drain,
    gate::{Gate, Visitor},
    http::problem::Problem,
    listener::Listener,
    status::Refused,
    tls::Tls,
    workers::Worker,
};
use crate::{auth::Access, telemetry::metrics::ListenerMeter};

/// How long to wait when the system has no more sockets to give.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// Most connections that are still taken, of those that wait when the listener closes.
const MAX_LAST_CONNECTIONS: usize = 4_096;
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
    /// What the listener is called where something is told of it.
    pub name: &'static str,
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

    /// What a request of this path needs, where callers are known.
    fn access(path: &str) -> Access;

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
        let Ok(response) = Self::clone(&self).call(request).await;
        response
    }

    fn access(path: &str) -> Access {
        access::of_page(path)
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
}

/// What a connection is served with.
struct Connection<R> {
    routes: Arc<R>,
    settings: ConnectionSettings,
    drain: Drain,
    tls: Option<Arc<Tls>>,
    gate: Option<Gate>,
}

/// An accepted connection, not yet bound to a runtime.
enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl<R: Serve + Clone> Server<R> {
    /// Accepts until listeners are to close, then who waits already. The connections go on by themselves.
    pub async fn run(self) {
        let open = Arc::new(Semaphore::new(self.settings.max_connections));
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.closing() => break,
                accepted = accept(&self.listener) => accepted,
            };
            match accepted {
                Ok(accepted) => self.take(accepted, &open),
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
            self.take(accepted, &open);
        }
    }

    /// Has a connection served, where there is room.
    fn take(&self, accepted: Accepted, open: &Arc<Semaphore>) {
        let Ok(permit) = Arc::clone(open).try_acquire_owned() else {
            self.meter.refused.increment(1);
            return;
        };
        let served = Connection {
            routes: Arc::new(self.routes.clone()),
            settings: self.settings,
            drain: self.drain.clone(),
            tls: self.tls.clone(),
            gate: self.gate.clone(),
        };
        let gauge = OpenGauge::new(&self.meter);
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

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl<R: Serve> Connection<R> {
    async fn serve(self, accepted: Accepted) -> Served {
        match accepted {
            Accepted::Tcp(stream) if self.tls.is_some() => {
                // Boxed, so that what is not encrypted does not carry the room for it around.
                Box::pin(self.encrypted(tokio::net::TcpStream::from_std(stream)?)).await
            }
            Accepted::Tcp(stream) => self.plain(tokio::net::TcpStream::from_std(stream)?).await,
            Accepted::Unix(stream) => self.plain(tokio::net::UnixStream::from_std(stream)?).await,
        }
    }

    async fn plain<I>(self, io: I) -> Served
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let visitor = self.gate.as_ref().map(|gate| gate.visitor(None, CancellationToken::new()));
        http(io, self, visitor, pending()).await
    }

    async fn encrypted(self, stream: tokio::net::TcpStream) -> Served {
        let Some(tls) = self.tls.clone() else { return Ok(()) };
        let accepted = tokio::select! {
            biased;
            () = self.drain.begun() => return Ok(()),
            accepted = tls.accept(stream, self.settings.name) => accepted,
        };
        let Some((stream, shown)) = accepted else { return Ok(()) };
        let revoked = CancellationToken::new();
        let bearer = shown.as_ref().map(|shown| Arc::clone(&shown.bearer));
        let visitor = self.gate.as_ref().map(|gate| gate.visitor(bearer, revoked.clone()));
        let auth = self.gate.as_ref().map(|gate| Arc::clone(&gate.auth));
        let name = self.settings.name;
        let until_revoked = async move {
            let Some(shown) = shown else { return pending().await };
            tls.until_revoked(shown, auth.as_deref(), name).await;
            revoked.cancel();
        };
        http(stream, self, visitor, until_revoked).await
    }
}

/// Serves a connection until it ends, the drain does, or `revoked` is done, which ends it soon.
async fn http<I, R>(
    io: I,
    connection: Connection<R>,
    visitor: Option<Visitor>,
    revoked: impl Future<Output = ()>,
) -> Served
where
    R: Serve,
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Connection { routes, settings, drain, .. } = connection;
    let asked = Arc::new(AtomicBool::new(false));
    let service = {
        let asked = Arc::clone(&asked);
        service_fn(move |mut request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            let admitted = visitor.as_ref().map_or(Ok(()), |visitor| {
                let (access, lasts) = (R::access(request.uri().path()), R::lasts(request.uri().path()));
                visitor.admit(&mut request, access, lasts)
            });
            let answer = admitted.map(|()| Arc::clone(&routes).serve(request));
            async {
                Ok::<_, Infallible>(match answer {
                    Ok(answer) => answer.await,
                    Err(denied) => R::refuse(denied.into()),
                })
            }
        })
    };
    let mut io = TimeoutStream::new(io);
    io.set_write_timeout(Some(WRITE_TIMEOUT));
    let builder = builder(&settings);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(io)), service));
    let idle = async {
        sleep(FIRST_REQUEST_TIMEOUT).await;
        if asked.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    };
    let is_revoked = tokio::select! {
        biased;
        result = connection.as_mut() => return result,
        () = drain.begun() => false,
        () = idle => false,
        () = revoked => true,
    };
    connection.as_mut().graceful_shutdown();
    let end = async {
        // Nothing is under way where nothing was asked, unless it comes before the goodbye is heard.
        if is_revoked || !asked.load(Ordering::Relaxed) {
            sleep(GOODBYE_TIMEOUT).await;
        }
        if !is_revoked && asked.load(Ordering::Relaxed) {
            drain.cut().await;
        }
    };
    tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = end => Ok(()),
    }
}

fn builder(settings: &ConnectionSettings) -> auto::Builder<TokioExecutor> {
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
    builder
}
