//! Calls whose message has not come, or not all of it. They are bounded in time, in bytes for the port, and in number for a
//! connection whose client has not authenticated. A call whose message comes with its head is not among them.

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

/// What a call that waits is counted with, beside the bytes of its message.
const CALL_BYTES: usize = 8 << 10;
/// Most bytes of all calls of the port that wait. Beyond it the oldest call of the connection that has the most is ended for a further
/// one, which is rejected if it is of that connection itself. So a connection that has few is not harmed by those that have many.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// Most bytes of calls that are ended but not gone, as their threads have not come to it. Beyond it a new one is rejected: otherwise
/// a burst would be in memory as a whole before the first of it is gone.
const MAX_ENDING_BYTES: usize = 4 << 20;
/// How long the end of a call whose place is needed may take before its connection is closed. Its body, which ends it, is not
/// polled while the client gives its answers no room.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Most calls of one connection that wait, until its client has authenticated.
pub const MAX_WAITING_UNAUTHENTICATED: usize = 16;

/// The calls of a port that wait for their message.
pub struct Arrivals {
    slots: Arc<Slots>,
    timeout: Duration,
    too_many: Counter,
    too_late: Counter,
}

/// Those of one connection.
pub struct ConnectionArrivals {
    port: Arc<Arrivals>,
    /// Who has the slots of its calls.
    owner: u64,
    connected: Connected,
    waiting: AtomicUsize,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// One message, and the end of the body with it.
    Message,
    /// Messages. What has begun has to become whole in time; the next one may be long in coming. Until the first is there the
    /// stream makes room for others.
    Stream,
}

/// The body of a request.
pub struct ArrivingBody<B> {
    body: B,
    arrivals: Arc<ConnectionArrivals>,
    awaited: Awaited,
    message_bytes: usize,
    framing: Framing,
    /// A message of the stream was whole.
    has_asked: bool,
    /// The thread has had the occasion to read the rest of what has begun.
    has_yielded: bool,
    wait: Option<Wait>,
}

/// A call that waits, from the second time that its body was not there.
struct Wait {
    arrivals: Arc<ConnectionArrivals>,
    slot: Slot,
    /// Why the call is ended, once it is.
    ended: oneshot::Receiver<Status>,
    _ends: AbortOnDropHandle<()>,
}

/// Most bytes of calls that wait or end, where a message may have so many: two of the largest have room.
pub fn max_bytes(max_message_bytes: usize) -> usize {
    max_waiting_bytes(max_message_bytes) + MAX_ENDING_BYTES
}

fn max_waiting_bytes(max_message_bytes: usize) -> usize {
    MAX_WAITING_BYTES.max(2 * (max_message_bytes + CALL_BYTES))
}

impl Arrivals {
    /// None yet. A message may take so long, and have so many bytes.
    pub fn new(timeout: Duration, max_message_bytes: usize, meter: &ListenerMeter) -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::new(max_waiting_bytes(max_message_bytes), max_bytes(max_message_bytes)),
            timeout,
            too_many: meter.too_many_open.clone(),
            too_late: meter.message_timeout.clone(),
        })
    }

    /// Those of this connection.
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
    /// Those of the port.
    pub fn port(&self) -> &Arc<Arrivals> {
        &self.port
    }

    /// The body of a call, of which so much is waited for.
    pub fn body<B>(self: &Arc<Self>, body: B, awaited: Awaited) -> ArrivingBody<B> {
        let (arrivals, framing) = (Arc::clone(self), Framing::default());
        let (message_bytes, has_asked, has_yielded) = Default::default();
        ArrivingBody { body, arrivals, awaited, message_bytes, framing, has_asked, has_yielded, wait: None }
    }

    /// Ends a call where it is evicted or, if it is `timed`, too late; and its connection, if an evicted one does not end.
    async fn end(self: Arc<Self>, evicted: CancellationToken, timed: bool, end: oneshot::Sender<Status>) {
        let port = &self.port;
        let too_late = async {
            if !timed {
                pending::<()>().await;
            }
            // Up to a tenth later, so that those of a burst do not end in one moment.
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
            // A client that pauses may go on, unless others need the room.
            evicted.cancelled().await;
            sleep(END_TIMEOUT).await;
            self.connected.left_unread().cancel();
        }
    }
}

impl Wait {
    /// A call of which so many bytes have come; `timed`, where the rest has to come in time.
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
    /// Whether some of it has come, or was waited for.
    fn has_begun(&self) -> bool {
        self.wait.is_some() || self.message_bytes > 0 || self.has_asked || self.framing.unfinished_bytes() > 0
    }

    fn came(&mut self, bytes: &[u8]) -> Result<(), Status> {
        if self.awaited == Awaited::Stream {
            let had_begun = self.framing.unfinished_bytes() > 0;
            let has_ended = self.framing.advance(bytes);
            self.has_asked |= has_ended;
            if has_ended || !had_begun {
                // A message that begins now has its own timeout.
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
            // Most messages come with the next read of the connection, and a slot takes longer than another poll.
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
