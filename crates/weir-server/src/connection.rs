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
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use weir_core::domain::time::SECOND;

use crate::{
    activity::{Activity, READ_TIMEOUT},
    close::CloseSignal,
    connected::Connected,
    connection_slots::ConnectionSlot,
    drain::Drain,
    ending::{FIRST_CALL_TIMEOUT, GOAWAY_GRACE, abuse, after_grace, count, force_close},
    fair_queue::{FairQueue, FairStream},
    http::builder,
    lifetime::{CloseReason, FIRST_REQUEST_TIMEOUT, Lifetime},
    metrics::ListenerMetrics,
    rate::Rate,
    server::{ConnectionSettings, Serve},
    slots::Slot,
    tls::{CertificateClients, Tls},
    unread::Unread,
};

/// Bytes of a TLS handshake read immediately: the usual first message, with a key share for a hybrid key exchange.
const FIRST_HANDSHAKE_BYTES: u64 = 2 << 10;
/// The header of the last HTTP/1 response of a connection.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// A connection, with everything that serves it.
pub(crate) struct Connection<R> {
    pub(crate) service: Arc<R>,
    /// The bounds of its listener.
    pub(crate) settings: ConnectionSettings,
    /// The signal of the graceful shutdown.
    pub(crate) drain: Drain,
    /// TLS, with the slot of the handshake.
    pub(crate) tls: Option<(Arc<Tls>, Slot)>,
    /// The clients that are identified by certificates.
    pub(crate) clients: Option<Arc<dyn CertificateClients>>,
    pub(crate) metrics: Arc<ListenerMetrics>,
    /// Its requests in flight.
    pub(crate) activity: Arc<Activity>,
    /// The unread answers.
    pub(crate) unread: Arc<Unread>,
    /// Its slot among the open connections.
    pub(crate) slot: Arc<ConnectionSlot>,
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
                // Boxed, so that the future of a plain connection does not hold space for TLS.
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
            () = self.drain.started() => false,
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
        let (connected, io) = (self.connected(peer), FairStream::new(io, self.queue.clone()));
        self.http(io, connected, pending()).await
    }

    async fn encrypted<I>(mut self, io: I, peer: SocketAddr) -> Served
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some((tls, handshake)) = self.tls.take() else { return Ok(()) };
        // Below TLS, since decrypting takes CPU time for each record, also for an empty one.
        let io = FairStream::with_first(io, self.queue.clone(), FIRST_HANDSHAKE_BYTES);
        let accepted = tokio::select! {
            biased;
            () = self.drain.started() => return Ok(()),
            () = self.slot.evicted() => {
                count(CloseReason::Evicted, &self.metrics);
                return Ok(());
            }
            accepted = tls.accept(handshake, io, self.settings.name) => accepted,
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
        let (slot, metrics) = (Arc::downgrade(&self.slot), Some(Arc::clone(&self.metrics)));
        Connected { peer, rate, slot, metrics, ..unbounded }
    }

    /// Serves until the connection ends or is closed by the drain, its lifetime, a bound on abuse, or `until_revoked`,
    /// which closes it soon. `io` reads from the network in fair turns.
    async fn http<I>(self, io: I, connected: Connected, until_revoked: impl Future<Output = ()>) -> Served
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { service, settings, drain, metrics, activity, unread, slot, .. } = self;
        let lifetime = Lifetime::new(&settings.traffic, activity, slot);
        let (close, rapid_resets) = (connected.close.clone(), Arc::clone(&connected.rapid_resets));
        let service = answering(Arc::new(service.on(connected)), Arc::clone(&lifetime.activity), close.clone());
        let mut io = TimeoutStream::new(io);
        io.set_write_timeout(Some(READ_TIMEOUT));
        let builder = builder(&settings);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(io)), service));
        let (mut revoked, mut abuse) = (pin!(until_revoked), pin!(abuse(&unread, &rapid_resets.1)));
        let mut why = tokio::select! {
            biased;
            result = connection.as_mut() => return result,
            why = abuse.as_mut() => why,
            () = drain.started() => CloseReason::Drain,
            why = lifetime.over() => why,
            () = revoked.as_mut() => CloseReason::Revoked,
        };
        count(why, &metrics);
        if matches!(why, CloseReason::Unread | CloseReason::RapidReset)
            || why == CloseReason::Evicted && !lifetime.activity.has_requests()
        {
            return Ok(());
        }
        let grace = settings.traffic.max_connection_age_grace.duration();
        let activity = &lifetime.activity;
        let announced_for = |why| match why {
            // A close between two requests might lose the second one, so the answer to the next request announces it.
            CloseReason::Age if activity.is_http1() => Some(grace),
            CloseReason::Drain | CloseReason::Evicted if activity.is_http1() && activity.is_authenticated() => {
                Some(GOAWAY_GRACE)
            }
            // Without a byte of its first request hyper does not know the protocol, and would end the connection.
            CloseReason::Drain if !settings.http2_only && !activity.has_requests() => Some(FIRST_CALL_TIMEOUT),
            _ => None,
        };
        let mut left = grace;
        while let Some(time) = announced_for(why) {
            activity.announce_end();
            tokio::select! {
                biased;
                result = connection.as_mut() => return result,
                () = drain.started(), if why == CloseReason::Age => why = CloseReason::Drain,
                () = drain.force_closing() => break,
                () = revoked.as_mut() => why = CloseReason::Revoked,
                () = lifetime.slot.evicted(), if why == CloseReason::Age => {
                    why = CloseReason::Evicted;
                    count(why, &metrics);
                }
                why = abuse.as_mut() => {
                    count(why, &metrics);
                    return Ok(());
                }
                () = sleep(time) => {
                    if !activity.is_authenticated() && lifetime.has_nothing_to_complete(why) {
                        return Ok(());
                    }
                    if why == CloseReason::Age {
                        left = Duration::ZERO;
                    }
                    break;
                }
            }
        }
        connection.as_mut().graceful_shutdown();
        let closed = async {
            tokio::select! {
                biased;
                // In its grace period it still has its slot.
                () = lifetime.slot.evicted(), if why != CloseReason::Evicted => {
                    count(CloseReason::Evicted, &metrics);
                    force_close(CloseReason::Evicted, left, &drain, &close, &lifetime).await;
                }
                () = drain.started(), if matches!(why, CloseReason::Age | CloseReason::Idle | CloseReason::Silent) => {
                    force_close(CloseReason::Drain, left, &drain, &close, &lifetime).await;
                }
                () = force_close(why, left, &drain, &close, &lifetime) => {}
            }
        };
        tokio::select! {
            biased;
            result = connection.as_mut() => result,
            why = abuse => {
                count(why, &metrics);
                Ok(())
            }
            () = closed => Ok(()),
            () = after_grace(revoked), if why != CloseReason::Revoked => Ok(()),
        }
    }
}

/// Makes the service of a connection, which records requests and announces the last HTTP/1 response.
fn answering<R: Serve>(
    service: Arc<R>,
    activity: Arc<Activity>,
    close: CloseSignal,
) -> impl Service<
    Request<Incoming>,
    Response = Response<R::Body>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<R::Body>, Infallible>> + Send,
> {
    service_fn(move |request: Request<Incoming>| {
        // The connection may not have noticed yet that it must close.
        let last = activity.note_request(request.version()).then(|| (Arc::clone(&activity), close.clone()));
        Arc::clone(&service).serve(request).map(|mut response| {
            if last.is_some_and(|(activity, close)| activity.is_last() || close.closed().is_some()) {
                response.headers_mut().insert(CONNECTION, CLOSE);
            }
            Ok(response)
        })
    })
}

#[cfg(test)]
mod tests;
