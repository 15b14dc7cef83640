//! One connection: TLS if the port has it, then HTTP until the connection ends, its lifetime is over, or the service
//! drains.

use std::{
    convert::Infallible, future::pending, io, mem::MaybeUninit, net::SocketAddr, num::NonZeroU32, pin::pin, sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use hyper::{
    Request, Response,
    body::Incoming,
    header::{CONNECTION, HeaderValue},
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use weir_core::domain::time::SECOND;

use crate::{
    activity::Activity,
    close::CloseSignal,
    connected::Connected,
    connection_slots::ConnectionSlot,
    drain::Drain,
    fair_queue::{FairQueue, FairStream},
    lifetime::{CloseReason, FIRST_REQUEST_TIMEOUT, Lifetime, Requests},
    metrics::ListenerMetrics,
    rate::Rate,
    server::{ConnectionSettings, Serve},
    slots::Slot,
    tls::{CertificateClients, Tls},
    unread::Unread,
};

/// Timeout for the head of an HTTP/1 request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Grace period of a connection after GOAWAY.
const GOAWAY_GRACE: Duration = Duration::from_secs(1);
/// Time for which a connection without a request stays open while the service drains: its first call may be on its way
/// from a delayed client, which cannot tell that a call sent to a closing connection was not carried out.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a write while the socket has no room.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a request's header list over HTTP/2.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Maximum read buffer over HTTP/1, in bytes; the head of a request must fit in it.
const MAX_HTTP1_BUFFER_BYTES: usize = 64 << 10;
/// Flow-control window of a connection, in bytes: held for streams that do not read their requests because their
/// answers are not read. Four such streams block all others. For a distant client a large batch takes a round trip for
/// each 64 KiB.
pub const MAX_HELD_REQUEST_BYTES: u32 = 256 << 10;
/// Flow-control window of a stream, in bytes: the default of HTTP/2.
const MAX_HELD_STREAM_BYTES: u32 = (64 << 10) - 1;
/// Bytes of answers that a stream buffers for a slow reader before it stops producing.
const MAX_SEND_BUFFER_BYTES: usize = 32 << 10;
/// Maximum number of reset calls of a connection that h2 holds before it reports them: more than fit in a turn, since
/// [`Connected::count_rapid_reset`] counts those of all turns.
const MAX_PENDING_RESETS: usize = 1_024;
/// Maximum number of calls that are reset for protocol errors, in the lifetime of a connection. Correct clients cause
/// none, except by requests that cross a GOAWAY.
const MAX_RESETS_FOR_ERRORS: usize = 1_024;
/// The header of the last HTTP/1 response of a connection.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// A connection, with everything that serves it.
pub(crate) struct Connection<R> {
    /// The service.
    pub(crate) service: R,
    /// The bounds of its listener.
    pub(crate) settings: ConnectionSettings,
    /// The signal of the graceful shutdown.
    pub(crate) drain: Drain,
    /// TLS, with the slot of the handshake.
    pub(crate) tls: Option<(Arc<Tls>, Slot)>,
    /// The clients that are identified by certificates.
    pub(crate) clients: Option<Arc<dyn CertificateClients>>,
    /// Its metrics.
    pub(crate) metrics: Arc<ListenerMetrics>,
    /// Its requests in flight.
    pub(crate) activity: Arc<Activity>,
    /// The unread answers.
    pub(crate) unread: Arc<Unread>,
    /// Its slot among the open connections.
    pub(crate) slot: ConnectionSlot,
    /// The queue in which it takes turns to read.
    pub(crate) queue: FairQueue,
}

/// An accepted connection, not yet bound to a runtime.
pub(crate) enum Accepted {
    /// A TCP connection from this address.
    Tcp(std::net::TcpStream, SocketAddr),
    /// A connection to a unix socket.
    Unix(std::os::unix::net::UnixStream),
}

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl<R: Serve> Connection<R> {
    /// Serves the connection until it ends.
    ///
    /// # Errors
    /// The error that ended it, which affects no other connection.
    pub(crate) async fn serve(self, accepted: Accepted) -> Served {
        match accepted {
            Accepted::Tcp(stream, peer) if self.tls.is_some() => {
                // Boxed, so that the future of a plain connection has no room for TLS.
                Box::pin(self.encrypted(tokio::net::TcpStream::from_std(stream)?, peer)).await
            }
            Accepted::Tcp(stream, peer) => {
                let stream = tokio::net::TcpStream::from_std(stream)?;
                if self.is_silent(stream.readable(), SockRef::from(&stream)).await {
                    Ok(())
                } else {
                    Box::pin(self.plain(stream, Some(peer))).await
                }
            }
            Accepted::Unix(stream) => {
                let stream = tokio::net::UnixStream::from_std(stream)?;
                if self.is_silent(stream.readable(), SockRef::from(&stream)).await {
                    Ok(())
                } else {
                    Box::pin(self.plain(stream, None)).await
                }
            }
        }
    }

    /// Waits for the first bytes of the client, which speaks first in HTTP: until then a connection has no buffers.
    /// `true`: there are none, and the connection is over.
    async fn is_silent(&self, readable: impl Future<Output = io::Result<()>>, socket: SockRef<'_>) -> bool {
        tokio::select! {
            biased;
            _ = readable => match socket.peek(&mut [MaybeUninit::uninit()]) {
                Ok(bytes) => bytes == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            },
            // The first call may be on its way.
            () = self.drain.begun() => false,
            () = self.slot.evicted() => {
                count(CloseReason::Evicted, &self.metrics);
                true
            }
            () = sleep(FIRST_REQUEST_TIMEOUT) => true,
        }
    }

    async fn plain<I>(self, io: I, peer: Option<SocketAddr>) -> Served
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connected = self.connected(peer);
        self.http(io, connected, pending()).await
    }

    async fn encrypted(mut self, stream: tokio::net::TcpStream, peer: SocketAddr) -> Served {
        let Some((tls, handshake)) = self.tls.take() else { return Ok(()) };
        let accepted = tokio::select! {
            biased;
            () = self.drain.begun() => return Ok(()),
            () = self.slot.evicted() => {
                count(CloseReason::Evicted, &self.metrics);
                return Ok(());
            }
            accepted = tls.accept(handshake, stream, self.settings.name) => accepted,
        };
        let Some((stream, certificate)) = accepted else { return Ok(()) };
        let revoked = CancellationToken::new();
        let identity = certificate.as_ref().map(|certificate| Arc::clone(&certificate.identity));
        let connected = Connected { certificate: identity, revoked: revoked.clone(), ..self.connected(Some(peer)) };
        let (name, clients) = (self.settings.name, self.clients.clone());
        let until_revoked = async move {
            let Some(certificate) = certificate else { return pending().await };
            tls.until_revoked(certificate, clients.as_deref(), name).await;
            revoked.cancel();
        };
        self.http(stream, connected, until_revoked).await
    }

    /// Makes the interface of the connection to its service.
    fn connected(&self, peer: Option<SocketAddr>) -> Connected {
        let rate = NonZeroU32::new(self.settings.traffic.max_requests_per_second);
        let rate = rate.map(|most| Arc::new(Rate::new(most, SECOND)));
        let unbounded = Connected::with(self.drain.clone(), Arc::clone(&self.activity), Arc::clone(&self.unread));
        Connected { peer, rate, metrics: Some(Arc::clone(&self.metrics)), ..unbounded }
    }

    /// Serves until the connection ends or is closed by the drain, its lifetime, a bound on abuse, or `until_revoked`,
    /// which closes it soon.
    async fn http<I>(self, io: I, connected: Connected, until_revoked: impl Future<Output = ()>) -> Served
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { service, settings, drain, metrics, activity, unread, slot, queue, .. } = self;
        let lifetime = Lifetime::new(&settings.traffic, activity, Some(slot));
        let (close, rapid_resets) = (connected.close.clone(), Arc::clone(&connected.rapid_resets));
        let service = answering(Arc::new(service.on(connected)), Arc::clone(lifetime.requests()));
        let mut io = TimeoutStream::new(FairStream::new(io, queue));
        io.set_write_timeout(Some(WRITE_TIMEOUT));
        let builder = builder(&settings);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(io)), service));
        let (mut revoked, mut abuse) = (pin!(until_revoked), pin!(abuse(&unread, &rapid_resets.1)));
        let mut why = tokio::select! {
            biased;
            result = connection.as_mut() => return result,
            why = abuse.as_mut() => why,
            () = drain.begun() => CloseReason::Drain,
            why = lifetime.over() => why,
            () = revoked.as_mut() => CloseReason::Revoked,
        };
        count(why, &metrics);
        if matches!(why, CloseReason::Unread | CloseReason::RapidReset)
            || why == CloseReason::Evicted && !lifetime.requests().any()
        {
            return Ok(());
        }
        let mut grace = settings.traffic.max_connection_age_grace.duration();
        if why == CloseReason::Age && lifetime.requests().are_http1() {
            // A close between two requests might lose the second one, so the answer to the next request announces it.
            lifetime.requests().end();
            tokio::select! {
                biased;
                result = connection.as_mut() => return result,
                () = drain.begun() => why = CloseReason::Drain,
                () = revoked.as_mut() => why = CloseReason::Revoked,
                why = abuse.as_mut() => {
                    count(why, &metrics);
                    return Ok(());
                }
                () = sleep(grace) => grace = Duration::ZERO,
            }
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            result = connection.as_mut() => result,
            why = abuse => {
                count(why, &metrics);
                Ok(())
            }
            () = force_close(why, grace, &drain, &close, lifetime.requests()) => Ok(()),
            () = after_grace(revoked), if why != CloseReason::Revoked => Ok(()),
        }
    }
}

/// Waits until the connection exceeds a bound on abuse, and returns which.
async fn abuse(unread: &Unread, rapid_resets: &CancellationToken) -> CloseReason {
    tokio::select! {
        () = unread.too_many().cancelled() => CloseReason::Unread,
        () = rapid_resets.cancelled() => CloseReason::RapidReset,
    }
}

fn count(why: CloseReason, metrics: &ListenerMetrics) {
    match why {
        CloseReason::Age => metrics.aged.increment(1),
        CloseReason::Idle => metrics.idle.increment(1),
        CloseReason::Evicted => metrics.evicted.increment(1),
        CloseReason::Unread => metrics.left_unread.increment(1),
        CloseReason::RapidReset => metrics.rapid_resets.increment(1),
        CloseReason::Drain | CloseReason::Revoked | CloseReason::Silent => {}
    }
}

/// Waits for `end` and the grace period after GOAWAY.
async fn after_grace(end: impl Future<Output = ()>) {
    end.await;
    sleep(GOAWAY_GRACE).await;
}

/// Waits until a connection must be closed after GOAWAY. Its streams are ended before.
async fn force_close(why: CloseReason, grace: Duration, drain: &Drain, close: &CloseSignal, requests: &Requests) {
    // Nothing is in flight without a request, nor on an evicted connection, unless a request crosses the GOAWAY.
    if matches!(why, CloseReason::Revoked | CloseReason::Evicted) || !requests.any() {
        let left_open = if why == CloseReason::Drain { FIRST_CALL_TIMEOUT } else { GOAWAY_GRACE };
        tokio::select! {
            biased;
            () = drain.force_closing() => return,
            () = sleep(left_open) => {}
        }
        if matches!(why, CloseReason::Revoked | CloseReason::Evicted) || !requests.any() {
            return;
        }
    }
    let alone = async {
        if !matches!(why, CloseReason::Age | CloseReason::Idle | CloseReason::Silent) {
            pending::<()>().await;
        }
        sleep(grace).await;
        close.close();
        sleep(GOAWAY_GRACE).await;
    };
    tokio::select! {
        biased;
        () = drain.force_closing() => {}
        () = alone => {}
    }
}

/// Makes the service of a connection, which records requests and announces the last HTTP/1 response.
fn answering<R: Serve>(
    service: Arc<R>,
    requests: Arc<Requests>,
) -> impl Service<
    Request<Incoming>,
    Response = Response<R::Body>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<R::Body>, Infallible>> + Send,
> {
    service_fn(move |request: Request<Incoming>| {
        let last = requests.note(request.version()).then(|| Arc::clone(&requests));
        Arc::clone(&service).serve(request).map(|mut response| {
            if last.is_some_and(|requests| requests.is_last()) {
                response.headers_mut().insert(CONNECTION, CLOSE);
            }
            Ok(response)
        })
    })
}

fn builder(settings: &ConnectionSettings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .max_concurrent_streams(settings.max_streams)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_connection_window_size(MAX_HELD_REQUEST_BYTES)
        .initial_stream_window_size(MAX_HELD_STREAM_BYTES)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_RESETS_FOR_ERRORS);
    if settings.http2_only {
        // gRPC clients do not need the date.
        builder.http2().auto_date_header(false);
        builder = builder.http2_only();
    }
    builder
}
