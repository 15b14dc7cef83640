//! Calls whose message has not arrived completely. They are bounded in time, in bytes for the port, and in number for a
//! connection whose client has not authenticated. A call whose message arrives with its head is not among them.

mod framing;

use std::{
    future::pending,
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::body::{Body, Bytes, Frame};
use metrics::Counter;
use tokio::{sync::oneshot, time::sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::Status;
use tower::BoxError;
use weir_server::{Connected, Full, Overload, Slot, Slots, metrics::ListenerMeter};

use crate::transport::status::Rejected;
use framing::Framing;

/// Bytes that a waiting call counts for, besides those of its message.
const CALL_BYTES: usize = 8 << 10;
/// Maximum bytes of all waiting calls of the port. Beyond it, the oldest call of the connection that holds the most is
/// evicted for a new call. If the new call belongs to that connection, it is rejected instead. So connections with many
/// waiting calls cannot harm one with few.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// Maximum bytes of evicted calls that still exist, because their threads have not run yet. Beyond it a new call is
/// rejected: otherwise a whole burst would be in memory before the first of it is gone.
const MAX_ENDING_BYTES: usize = 4 << 20;
/// Time for an evicted call to end before its connection is closed. Its body, which ends it, is not polled while the
/// client's flow-control window is full.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of waiting calls of a connection until its client has authenticated.
pub const MAX_WAITING_UNAUTHENTICATED: usize = 16;

/// The calls of a port that wait for their message.
pub struct Arrivals {
    slots: Arc<Slots>,
    timeout: Duration,
    too_many: Counter,
    too_late: Counter,
}

/// The waiting calls of one connection.
pub struct ConnectionArrivals {
    port: Arc<Arrivals>,
    /// The owner of the slots of its calls.
    owner: u64,
    connected: Connected,
    waiting: AtomicUsize,
}

/// The data that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// One message, and the end of the body after it.
    Message,
    /// Messages. A message that has started must arrive completely in time; the next one may start at any time. The
    /// stream can be evicted until its first message is complete, and within a message.
    Stream,
}

/// The body of a request.
pub struct ArrivingBody<B> {
    body: B,
    arrivals: Arc<ConnectionArrivals>,
    awaited: Awaited,
    message_bytes: usize,
    framing: Framing,
    /// Whether a message of the stream has been complete.
    has_asked: bool,
    /// Whether the task has yielded once, so that the connection could be read.
    has_yielded: bool,
    wait: Option<Wait>,
}

/// A waiting call, from the second poll that finds no data.
struct Wait {
    arrivals: Arc<ConnectionArrivals>,
    slot: Slot,
    /// Receives the status that the call ends with.
    ended: oneshot::Receiver<Status>,
    _ends: AbortOnDropHandle<()>,
}

/// Returns the maximum bytes of waiting and evicted calls of a port with this message size: two of the largest messages
/// fit.
pub fn max_bytes(max_message_bytes: usize) -> usize {
    max_waiting_bytes(max_message_bytes) + MAX_ENDING_BYTES
}

fn max_waiting_bytes(max_message_bytes: usize) -> usize {
    MAX_WAITING_BYTES.max(2 * (max_message_bytes + CALL_BYTES))
}

impl Arrivals {
    /// Returns a port without calls. `timeout` and `max_message_bytes` apply to each message.
    pub fn new(timeout: Duration, max_message_bytes: usize, meter: &ListenerMeter) -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::new(max_waiting_bytes(max_message_bytes), max_bytes(max_message_bytes)),
            timeout,
            too_many: meter.too_many_open.clone(),
            too_late: meter.message_timeout.clone(),
        })
    }

    /// Returns the calls of this connection.
    pub fn of(self: &Arc<Self>, connected: Connected) -> Arc<ConnectionArrivals> {
        let (port, owner) = (Arc::clone(self), self.slots.owner());
        Arc::new(ConnectionArrivals { port, owner, connected, waiting: AtomicUsize::new(0) })
    }

    fn reject(&self) -> Status {
        self.too_many.increment(1);
        Rejected::from(Overload::Open).into()
    }
}

impl ConnectionArrivals {
    /// Returns the calls of the port.
    pub fn port(&self) -> &Arc<Arrivals> {
        &self.port
    }

    /// Returns the body of a call that waits for `awaited`.
    pub fn body<B>(self: &Arc<Self>, body: B, awaited: Awaited) -> ArrivingBody<B> {
        let (arrivals, framing) = (Arc::clone(self), Framing::default());
        let (message_bytes, has_asked, has_yielded) = Default::default();
        ArrivingBody { body, arrivals, awaited, message_bytes, framing, has_asked, has_yielded, wait: None }
    }

    /// Ends a call when it is evicted or, if it is `timed`, too late. Closes the connection if an evicted call does not
    /// end.
    async fn end(self: Arc<Self>, evicted: CancellationToken, timed: bool, end: oneshot::Sender<Status>) {
        let port = &self.port;
        let too_late = async {
            if !timed {
                pending::<()>().await;
            }
            // A jitter of up to a tenth, so that the calls of a burst do not end in one moment.
            sleep(port.timeout.mul_f64(rand::random_range(1.0..1.1))).await;
        };
        let status = tokio::select! {
            biased;
            () = evicted.cancelled() => port.reject(),
            () = too_late => {
                port.too_late.increment(1);
                Status::deadline_exceeded("the message of the call did not come in time")
            }
        };
        if end.send(status).is_ok() {
            // A late client may go on, unless the room of its call is needed.
            evicted.cancelled().await;
            sleep(END_TIMEOUT).await;
            self.connected.left_unread().cancel();
        }
    }
}

impl Wait {
    /// Starts the wait of a call that has received this many bytes. If it is `timed`, the rest must arrive in time.
    fn begin(arrivals: &Arc<ConnectionArrivals>, timed: bool, bytes: usize) -> Result<Self, Status> {
        let port = &arrivals.port;
        let may_wait = arrivals.connected.is_authenticated()
            || arrivals.waiting.load(Ordering::Relaxed) < MAX_WAITING_UNAUTHENTICATED;
        let slot = may_wait.then(|| port.slots.take(arrivals.owner, CALL_BYTES + bytes));
        let Some(Ok(slot)) = slot else { return Err(port.reject()) };
        arrivals.waiting.fetch_add(1, Ordering::Relaxed);
        let (end, ended) = oneshot::channel();
        let ends = tokio::spawn(Arc::clone(arrivals).end(slot.evicted().clone(), timed, end));
        Ok(Self { arrivals: Arc::clone(arrivals), slot, ended, _ends: AbortOnDropHandle::new(ends) })
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let ended = ready!(Pin::new(&mut self.ended).poll(cx));
        Poll::Ready(ended.unwrap_or_else(|_| self.arrivals.port.reject()))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.arrivals.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B> ArrivingBody<B> {
    /// Whether any data has arrived or was waited for.
    fn has_begun(&self) -> bool {
        self.wait.is_some() || self.message_bytes > 0 || self.has_asked || self.framing.unfinished_bytes() > 0
    }

    fn came(&mut self, bytes: &[u8]) -> Result<(), Status> {
        if self.awaited == Awaited::Stream {
            let had_begun = self.framing.unfinished_bytes() > 0;
            let has_ended = self.framing.advance(bytes);
            self.has_asked |= has_ended;
            if has_ended || !had_begun {
                // A message that starts now has its own timeout.
                (self.wait, self.has_yielded) = (None, false);
            }
        } else {
            self.message_bytes += bytes.len();
        }
        let Some(wait) = &mut self.wait else { return Ok(()) };
        wait.slot.grow(bytes.len()).map_err(|Full| self.arrivals.port.reject())
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let (timed, unfinished) = match (self.awaited, self.framing.unfinished_bytes()) {
            (Awaited::Message, _) => (true, self.message_bytes),
            (Awaited::Stream, unfinished) => (unfinished > 0, unfinished),
        };
        if !timed && self.has_asked {
            return Poll::Pending;
        }
        let wait = match &mut self.wait {
            Some(wait) => wait,
            // Most messages arrive with the next read of the connection, and taking a slot costs more time than another
            // poll.
            None if !mem::replace(&mut self.has_yielded, true) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            none => match Wait::begin(&self.arrivals, timed, unfinished) {
                Ok(wait) => none.insert(wait),
                Err(status) => return Poll::Ready(status),
            },
        };
        wait.poll_end(cx)
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for ArrivingBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let came = frame.data_ref().map_or(Ok(()), |bytes| this.came(bytes));
                Poll::Ready(Some(came.map(|()| frame).map_err(Into::into)))
            }
            Poll::Ready(end) => {
                if matches!(end, Some(Err(_))) && !this.has_begun() {
                    this.arrivals.connected.taken_back();
                }
                this.wait = None;
                Poll::Ready(end.map(|end| end.map_err(Into::into)))
            }
            Poll::Pending => this.poll_wait(cx).map(|status| Some(Err(status.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests;
