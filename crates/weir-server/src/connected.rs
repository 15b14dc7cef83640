//! The interface of a connection to its service, with the count of its requests.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use hyper::{
    Request, Version,
    body::{Body as _, Incoming},
};
use tokio_util::sync::CancellationToken;
use weir_core::domain::time::SECOND;

use crate::{
    activity::{Activity, InFlight},
    close::CloseSignal,
    connection_slots::ConnectionSlot,
    drain::Drain,
    metrics::ListenerMetrics,
    rate::Rate,
    slots::Full,
    tls::CertificateIdentity,
    unread::{self, Unread, UnreadAnswer},
};

/// Maximum number of calls that a client may reset before the service has read them: as a burst, and then per second. A
/// connection with more is closed: such calls cost CPU time and are never answered (rapid reset).
// A client whose deadlines pass while this thread is stalled resets all its calls in flight at once, a few hundred, and
// must not lose its connection for that.
const MAX_RAPID_RESETS: NonZeroU32 = NonZeroU32::new(256).unwrap();

/// A connection, as the service of its requests sees it.
#[derive(Clone)]
pub struct Connected {
    /// The id, unique among the connections of this process.
    pub number: u64,
    /// The client's address; `None` for a unix socket.
    pub peer: Option<SocketAddr>,
    /// The signal that its streams must end.
    pub close: CloseSignal,
    /// The maximum rate of its requests, if bounded.
    pub rate: Option<Arc<Rate>>,
    /// The identity in the client certificate, if any.
    pub certificate: Option<Arc<CertificateIdentity>>,
    /// Cancelled once that certificate is no longer accepted.
    pub revoked: CancellationToken,
    pub(crate) activity: Arc<Activity>,
    /// Its slot among the open connections.
    pub(crate) slot: Weak<ConnectionSlot>,
    pub(crate) unread: Arc<Unread>,
    /// The rate of calls that the client resets, and the token that is cancelled when they are too many.
    pub(crate) rapid_resets: Arc<(Rate, CancellationToken)>,
    pub(crate) metrics: Option<Arc<ListenerMetrics>>,
}

/// Why a request is rejected before it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// Too many requests per second on its connection; the next one is admitted after this time.
    Rate(Duration),
    /// Too many decisions of the listener are waiting.
    Concurrency,
    /// Too many calls are open whose message has not arrived yet.
    Open,
    /// Too many answers are unread.
    Unread,
}

impl Connected {
    /// Makes a connection without bounds, closed by this drain.
    pub fn new(drain: Drain) -> Self {
        Self::with(drain, Arc::new(Activity::new(false)), Unread::new(&unread::of_port()))
    }

    /// Makes a connection with these counts of its requests and answers.
    pub(crate) fn with(drain: Drain, activity: Arc<Activity>, unread: Arc<Unread>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            peer: None,
            close: CloseSignal::new(drain),
            rate: None,
            certificate: None,
            revoked: CancellationToken::new(),
            activity,
            slot: Weak::new(),
            unread,
            rapid_resets: Arc::new((Rate::new(MAX_RAPID_RESETS, SECOND), CancellationToken::new())),
            metrics: None,
        }
    }

    /// Counts a request against the rate of its connection.
    ///
    /// # Errors
    /// [`Overload::Rate`] if it exceeds the rate.
    #[inline]
    pub fn pace(&self) -> Result<(), Overload> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.take().map_err(|wait| {
            if let Some(metrics) = &self.metrics {
                metrics.too_fast.increment(1);
            }
            Overload::Rate(wait)
        })
    }

    /// Counts the start of a request. `is_authenticated`: its client has authenticated for it, or need not. From then on
    /// the connection counts as one of such a client, which is not evicted while it has such requests in flight.
    #[inline]
    pub fn begin(&self, is_authenticated: bool) -> InFlight {
        let in_flight = self.activity.begin(is_authenticated);
        // After: a connection without requests in flight may be evicted.
        if is_authenticated
            && !self.is_authenticated()
            && self.activity.authenticate()
            && let Some(slot) = self.slot.upgrade()
        {
            slot.authenticated();
        }
        in_flight
    }

    /// Counts a call that the client has reset before more than its head was read.
    pub fn count_rapid_reset(&self) {
        let (rate, too_many) = &*self.rapid_resets;
        if rate.take().is_err() {
            too_many.cancel();
        }
    }

    /// Counts a call that is answered from its head alone, if the client has reset it by now.
    pub fn answered_by_its_head(&self, request: Request<Incoming>) {
        // In HTTP/1, polling the body may ask the client to send it.
        if request.version() == Version::HTTP_2 {
            let mut body = request.into_body();
            let looked = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
            if matches!(looked, Poll::Ready(Some(Err(_)))) {
                self.count_rapid_reset();
            }
        }
    }

    /// Counts an answer of `bytes` as unread, and its request, if it is given, as in flight until the answer is read.
    ///
    /// # Errors
    /// [`Overload::Unread`] if there is no room for it.
    #[inline]
    pub fn unread(&self, bytes: usize, in_flight: Option<InFlight>) -> Result<Arc<UnreadAnswer>, Overload> {
        self.unread.add(bytes, in_flight.map(InFlight::answered)).map_err(|Full| {
            if let Some(metrics) = &self.metrics {
                metrics.unread.increment(1);
            }
            Overload::Unread
        })
    }

    /// Keeps the connection from being closed for its age until the guard is dropped: for a stream that must not end
    /// unless the service drains. Afterwards it is closed within another maximum age.
    #[must_use]
    pub fn keep_from_aging(&self) -> Arc<()> {
        self.activity.keep_from_aging()
    }

    /// Returns the token that closes the connection, as one whose client leaves its answers unread.
    pub fn left_unread(&self) -> CancellationToken {
        self.unread.too_many().clone()
    }

    /// Whether the client has authenticated for a request, or needed not.
    #[inline]
    pub fn is_authenticated(&self) -> bool {
        self.activity.is_authenticated()
    }
}
