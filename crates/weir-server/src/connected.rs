//! A connection as its service sees it, and the count of its requests.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    activity::{Activity, Busy},
    close::CloseSignal,
    drain::Drain,
    metrics::ListenerMeter,
    rate::Rate,
    slots::Full,
    tls::Bearer,
    unread::{self, Unread, UnreadAnswer},
};

/// Most calls that a client may take back before the service has looked at them, at once and then a second. A connection with
/// more is closed: such calls cost CPU time and are never answered (rapid reset).
// A client whose deadlines pass while this thread stands still takes back all it has under way at once, a few hundred, and must
// not lose its connection for it.
const MAX_TAKEN_BACK: NonZeroU32 = NonZeroU32::new(256).unwrap();

/// A connection, as the service of its requests sees it.
#[derive(Clone)]
pub struct Connected {
    /// Unique among the connections of this process.
    pub number: u64,
    /// The client's address; `None` for a unix socket.
    pub peer: Option<SocketAddr>,
    /// When its streams must end.
    pub close: CloseSignal,
    /// How many requests it may make, where that is bounded.
    pub rate: Option<Arc<Rate>>,
    /// The identity in the client certificate, if any.
    pub bearer: Option<Arc<Bearer>>,
    /// Cancelled once that certificate is not accepted any more.
    pub revoked: CancellationToken,
    pub(crate) is_authenticated: Arc<AtomicBool>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) unread: Arc<Unread>,
    /// The rate of calls that are taken back, and the token that is cancelled when they are too many.
    pub(crate) taken_back: Arc<(Rate, CancellationToken)>,
    pub(crate) meter: Option<Arc<ListenerMeter>>,
}

/// Why a request is rejected before it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// Its connection makes too many a second; the next one passes after this time.
    Rate(Duration),
    /// Too many decisions of the listener wait.
    Concurrency,
    /// Too many calls are open that ask nothing of anyone yet.
    Open,
    /// Too many answers are not read.
    Unread,
}

/// One of the requests in flight of its listener, until this is dropped: keep it as long as the body of the answer.
#[derive(Default)]
pub struct InFlight {
    _busy: Option<Busy>,
}

impl Connected {
    /// A connection without bounds, which ends with this drain.
    pub fn new(drain: Drain) -> Self {
        Self::with(drain, Arc::new(Activity::new(false)), Unread::new(&unread::of_port()))
    }

    /// The same with these counts of its requests and answers.
    pub(crate) fn with(drain: Drain, activity: Arc<Activity>, unread: Arc<Unread>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            peer: None,
            close: CloseSignal::new(drain),
            rate: None,
            bearer: None,
            revoked: CancellationToken::new(),
            is_authenticated: Arc::default(),
            activity,
            unread,
            taken_back: Arc::new((Rate::new(MAX_TAKEN_BACK, SECOND), CancellationToken::new())),
            meter: None,
        }
    }

    /// Counts a request against the rate of its connection.
    ///
    /// # Errors
    /// [`Overload::Rate`] when it comes too early.
    #[inline]
    pub fn pace(&self) -> Result<(), Overload> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.take().map_err(|wait| {
            if let Some(meter) = &self.meter {
                meter.too_fast.increment(1);
            }
            Overload::Rate(wait)
        })
    }

    /// A request begins.
    #[inline]
    pub fn begin(&self) -> InFlight {
        InFlight { _busy: Some(self.activity.begin()) }
    }

    /// A call was taken back before anything but its head was read.
    pub fn taken_back(&self) {
        let (rate, too_many) = &*self.taken_back;
        if rate.take().is_err() {
            too_many.cancel();
        }
    }

    /// A call is answered without reading more than its head; it may have been taken back by now.
    pub fn answered_by_its_head(&self, request: Request<Incoming>) {
        // To look at the body of another version may ask the client for it.
        if request.version() == Version::HTTP_2 {
            let mut body = request.into_body();
            let looked = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
            if matches!(looked, Poll::Ready(Some(Err(_)))) {
                self.taken_back();
            }
        }
    }

    /// Counts an answer of so many bytes as unread.
    ///
    /// # Errors
    /// [`Overload::Unread`] where there is no room for it.
    #[inline]
    pub fn unread(&self, bytes: usize) -> Result<Arc<UnreadAnswer>, Overload> {
        self.unread.add(bytes).map_err(|Full| {
            if let Some(meter) = &self.meter {
                meter.unread.increment(1);
            }
            Overload::Unread
        })
    }

    /// Closes the connection when it is cancelled, as one whose client does not read its answers.
    pub fn left_unread(&self) -> CancellationToken {
        self.unread.too_many().clone()
    }

    /// A client of this connection has shown who it is, or need not.
    #[inline]
    pub fn authenticate(&self) {
        if !self.is_authenticated() {
            self.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Whether one has.
    #[inline]
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Relaxed)
    }
}
