//! One connection: encrypted where its port is, served by HTTP until it ends, its time is over or the service ends.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    num::NonZeroU32,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use hyper::{
    Request, Response,
    body::Incoming,
    header::{CONNECTION, HeaderValue},
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::{
    at_hand::{CallsAtHand, Leave},
    drain::Drain,
    farewell::{Connected, Farewell},
    gate::{Gate, Visitor},
    in_flight::{Counted, Held},
    lifetime::{Activity, Asked, Lifetime, Why},
    rate::Rate,
    server::{ConnectionSettings, Serve},
    status::Refused,
    tls::Tls,
    watch::{Watch, Watched, given_id, tell_id},
};
use crate::{
    auth::{Access, Role},
    domain::time::SECOND,
    telemetry::{metrics::ListenerMeter, trail},
};

/// How long a client may take for the head of an HTTP/1 request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that was told to go may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection that has not asked yet is left open when the service ends: its first call may be on its way from a
/// client that was held up, and a client cannot tell that what it sent to a connection that closes was not carried out.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may let a write wait that its socket has no room for.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a silent HTTP/2 connection is asked whether it lives, and how long it may take to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// Largest head of a request over HTTP/2.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Most bytes that are read ahead over HTTP/1, where the head of a request has to fit in.
const MAX_HTTP1_BUFFER_BYTES: usize = 64 << 10;
/// Most bytes that wait in a connection's stream for a reader that is slow.
const MAX_SEND_BUFFER_BYTES: usize = 256 << 10;
/// Most calls of a connection that were taken back before they were looked at. One more closes it: that is how calls are made
/// to cost something without being answered.
// A client whose deadlines pass while this thread stands still takes back all it had under way at once, and is not to lose its
// connection for it; h2's own bound of 20 would be met by that.
const MAX_PENDING_RESETS: usize = 256;
/// Most calls of a connection that are reset because they break the protocol, in all its time. Good clients make none, but for
/// what crosses a goodbye.
const MAX_RESETS_FOR_ERRORS: usize = 1_024;
/// What an answer over HTTP/1 says where it is the last of its connection.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// What a connection is served with.
pub struct Connection<R> {
    /// What answers.
    pub routes: R,
    /// The bounds of its listener.
    pub settings: ConnectionSettings,
    /// When the service ends.
    pub drain: Drain,
    /// How it is encrypted.
    pub tls: Option<Arc<Tls>>,
    /// Who may call.
    pub gate: Option<Gate>,
    /// What is counted.
    pub meter: Arc<ListenerMeter>,
    /// The requests in flight that its listener permits, where they are bounded.
    pub in_flight: Option<Arc<Semaphore>>,
    /// Who is told of requests, where anybody is.
    pub watch: Option<Arc<Watch>>,
}

/// An accepted connection, not yet bound to a runtime.
pub enum Accepted {
    /// By TCP.
    Tcp(std::net::TcpStream),
    /// By a unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// What a request is answered with.
type Answer<R> = Response<Counted<<R as Serve>::Body>>;

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl<R: Serve> Connection<R> {
    /// Serves it to its end.
    ///
    /// # Errors
    /// What went wrong with it, which is of no concern to others.
    pub async fn serve(self, accepted: Accepted) -> Served {
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
        self.http(io, visitor, pending()).await
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
        self.http(stream, visitor, until_revoked).await
    }

    /// Serves until the connection ends, or something tells it to: the drain, its own time, or `revoked`, which ends it soon.
    async fn http<I>(self, io: I, visitor: Option<Visitor>, revoked: impl Future<Output = ()>) -> Served
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { routes, settings, drain, meter, in_flight, watch, .. } = self;
        let lifetime = Lifetime::new(&settings.traffic);
        let rate =
            NonZeroU32::new(settings.traffic.max_requests_per_second).map(|most| Arc::new(Rate::new(most, SECOND)));
        let connected = Connected::new(drain.clone(), rate.clone());
        let farewell = connected.farewell.clone();
        let routes = Arc::new(routes.on(connected));
        let asked = Arc::clone(lifetime.asked());
        let activity = lifetime.activity().cloned();
        let desk = Desk { visitor, rate, in_flight, watch, activity, meter: Arc::clone(&meter) };
        let service = desk.service(routes, asked);
        let mut io = TimeoutStream::new(io);
        io.set_write_timeout(Some(WRITE_TIMEOUT));
        let calls = CallsAtHand::new();
        let builder = builder(&settings, calls.leave());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(io)), service));
        let mut revoked = pin!(revoked);
        let mut why = tokio::select! {
            biased;
            result = poll_fn(|cx| calls.poll(connection.as_mut(), cx)) => return result,
            () = drain.begun() => Why::Drain,
            why = lifetime.over() => why,
            () = revoked.as_mut() => Why::Revoked,
        };
        count(why, &meter);
        let mut grace = settings.traffic.max_connection_age_grace.duration();
        if why == Why::Age && lifetime.asked().by_http1() {
            // Closed between two requests, it might lose the second. So the answer to the next one says that it is the last.
            lifetime.asked().end();
            tokio::select! {
                biased;
                result = poll_fn(|cx| calls.poll(connection.as_mut(), cx)) => return result,
                () = drain.begun() => why = Why::Drain,
                () = revoked.as_mut() => why = Why::Revoked,
                () = sleep(grace) => grace = Duration::ZERO,
            }
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            result = poll_fn(|cx| calls.poll(connection.as_mut(), cx)) => result,
            () = cut(why, grace, &drain, &farewell, lifetime.asked()) => Ok(()),
            () = soon_after(revoked), if why != Why::Revoked => Ok(()),
        }
    }
}

fn refuse<R: Serve>(refused: Refused, id: Option<HeaderValue>) -> Response<R::Body> {
    let mut response = R::refuse(refused);
    tell_id(id, response.headers_mut());
    response
}

fn count(why: Why, meter: &ListenerMeter) {
    match why {
        Why::Age => meter.aged.increment(1),
        Why::Idle => meter.idle.increment(1),
        Why::Drain | Why::Revoked | Why::Silent => {}
    }
}

/// Waits as long as a connection has that was told to go after this.
async fn soon_after(end: impl Future<Output = ()>) {
    end.await;
    sleep(GOODBYE_TIMEOUT).await;
}

/// Waits until a connection that was told to go is to be cut, and says farewell to its streams before.
async fn cut(why: Why, grace: Duration, drain: &Drain, farewell: &Farewell, asked: &Asked) {
    // Nothing is under way where nothing was asked, unless it comes before the goodbye is heard.
    if why == Why::Revoked || !asked.anything() {
        let left_open = if why == Why::Drain { FIRST_CALL_TIMEOUT } else { GOODBYE_TIMEOUT };
        tokio::select! {
            biased;
            () = drain.cut() => return,
            () = sleep(left_open) => {}
        }
        if why == Why::Revoked || !asked.anything() {
            return;
        }
    }
    let alone = async {
        if !matches!(why, Why::Age | Why::Idle) {
            pending::<()>().await;
        }
        sleep(grace).await;
        farewell.say();
        sleep(GOODBYE_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        () = drain.cut() => {}
        () = alone => {}
    }
}

/// Where the requests of a connection come in: what of it is bounded, and who may ask.
struct Desk {
    visitor: Option<Visitor>,
    rate: Option<Arc<Rate>>,
    in_flight: Option<Arc<Semaphore>>,
    watch: Option<Arc<Watch>>,
    activity: Option<Arc<Activity>>,
    meter: Arc<ListenerMeter>,
}

impl Desk {
    /// What answers the requests of the connection.
    fn service<R: Serve>(
        self,
        routes: Arc<R>,
        asked: Arc<Asked>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Answer<R>,
        Error = Infallible,
        Future = impl Future<Output = Result<Answer<R>, Infallible>> + Send,
    > {
        service_fn(move |mut request: Request<Incoming>| {
            let last = asked.note(request.version()).then(|| Arc::clone(&asked));
            let (watched, admitted) = self.receive::<R>(&mut request);
            let answer = match admitted {
                Ok(held) => Ok((held, Arc::clone(&routes).serve(request))),
                Err(refused) => Err((refused, given_id(request.headers()))),
            };
            async {
                let (mut response, mut held) = match (answer, &watched) {
                    (Ok((held, answer)), None) => (answer.await, held),
                    // Boxed, so that those that nobody is told of do not carry the room for it around.
                    (Ok((held, answer)), Some(watched)) => (Box::pin(watched.within(answer)).await, held),
                    (Err((refused, id)), _) => (refuse::<R>(refused, id), Held::default()),
                };
                if let Some(mut watched) = watched {
                    watched.answered(&mut response);
                    held.watched = Some(watched);
                }
                let mut response = response.map(|body| Counted::new(body, held));
                if last.is_some_and(|asked| asked.is_last()) {
                    response.headers_mut().insert(CONNECTION, CLOSE);
                }
                Ok::<_, Infallible>(response)
            }
        })
    }

    /// Who is to be told of a request, and whether it is let in.
    #[inline]
    fn receive<R: Serve>(&self, request: &mut Request<Incoming>) -> (Option<Box<Watched>>, Result<Held, Refused>) {
        let Some(watch) = &self.watch else { return (None, self.admit::<R>(request)) };
        let watched = Watched::begin::<R, _>(watch, request);
        let admitted = trail::enter(watched.trail(), || self.admit::<R>(request));
        (Some(watched), admitted)
    }

    /// Lets a request in, with what it holds while it is under way.
    #[inline]
    fn admit<R: Serve>(&self, request: &mut Request<Incoming>) -> Result<Held, Refused> {
        if let Some(rate) = &self.rate {
            rate.take().map_err(|wait| {
                self.meter.too_fast.increment(1);
                Refused::too_fast(wait)
            })?;
        }
        if let Some(visitor) = &self.visitor {
            let (access, lasts) = (R::access(request.uri().path()), R::lasts(request.uri().path()));
            visitor.admit(request, access, lasts)?;
        }
        let permit = match &self.in_flight {
            Some(in_flight) => self.permit::<R>(in_flight, request.uri().path())?,
            None => None,
        };
        Ok(Held { permit, busy: self.activity.as_ref().map(Activity::begin), watched: None })
    }

    /// A permit for a request of this path. Health and metrics need none: they are wanted most when there is none left.
    fn permit<R: Serve>(
        &self,
        in_flight: &Arc<Semaphore>,
        path: &str,
    ) -> Result<Option<OwnedSemaphorePermit>, Refused> {
        let permit = Arc::clone(in_flight).try_acquire_owned().ok();
        if permit.is_none() && matches!(R::access(path), Access::Role(Role::Check | Role::Reset)) {
            self.meter.too_many.increment(1);
            return Err(Refused::too_many());
        }
        Ok(permit)
    }
}

fn builder(settings: &ConnectionSettings, leave: Leave) -> auto::Builder<Leave> {
    let mut builder = auto::Builder::new(leave);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE.0)
        .keep_alive_timeout(KEEPALIVE.1)
        .max_concurrent_streams(settings.max_streams)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_RESETS_FOR_ERRORS);
    if settings.http2_only {
        // Callers over gRPC do not ask for the date.
        builder.http2().auto_date_header(false);
        builder = builder.http2_only();
    }
    builder
}
