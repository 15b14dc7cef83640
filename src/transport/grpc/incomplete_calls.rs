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
use weir_server::{Connected, Full, Overload, Slot, Slots, metrics::ListenerMetrics};

use crate::transport::status::Rejected;
use framing::Framing;

/// Bytes that a waiting call counts for, besides those of its message.
const CALL_BYTES: usize = 8 << 10;
/// Maximum bytes of all waiting calls of the port, or more if two of the largest messages would not fit. Beyond it, the
/// oldest call of the connection that holds the most is evicted for a new call. If the new call belongs to that
/// connection, it is rejected instead. So connections with many waiting calls cannot harm one with few.
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
pub struct IncompleteCalls {
    slots: Arc<Slots>,
    timeout: Duration,
    too_many: Counter,
    too_late: Counter,
}

/// The waiting calls of one connection.
pub struct ConnectionCalls {
    port: Arc<IncompleteCalls>,
    /// The owner of the slots of its calls.
    owner: u64,
    connected: Connected,
    waiting: AtomicUsize,
}

/// The data that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// One message, and the end of the body after it.
    Message,
    /// Messages. A message that has started must arrive completely in time; the next one may start at any time. The
    /// stream can be evicted until its first message is complete, and within a message.
    Stream,
}

/// The body of a request.
pub struct RequestBody<B> {
    body: B,
    calls: Arc<ConnectionCalls>,
    expected: Expected,
    message_bytes: usize,
    framing: Framing,
    /// Whether a message of the stream has been complete.
    had_complete_message: bool,
    /// Whether the task has yielded once, so that the connection could be read.
    has_yielded: bool,
    wait: Option<Wait>,
}

/// A waiting call, from the second poll that finds no data.
struct Wait {
    calls: Arc<ConnectionCalls>,
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

impl IncompleteCalls {
    /// Returns a port without calls. `timeout` and `max_message_bytes` apply to each message.
    pub fn new(timeout: Duration, max_message_bytes: usize, metrics: &ListenerMetrics) -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::new(max_waiting_bytes(max_message_bytes), max_bytes(max_message_bytes)),
            timeout,
            too_many: metrics.too_many_open.clone(),
            too_late: metrics.message_timeout.clone(),
        })
    }

    /// Returns the calls of this connection.
    pub fn of(self: &Arc<Self>, connected: Connected) -> Arc<ConnectionCalls> {
        let (port, owner) = (Arc::clone(self), self.slots.owner());
        Arc::new(ConnectionCalls { port, owner, connected, waiting: AtomicUsize::new(0) })
    }

    fn reject(&self) -> Status {
        self.too_many.increment(1);
        Rejected::from(Overload::Open).into()
    }
}

impl ConnectionCalls {
    /// Returns the calls of the port.
    pub fn port(&self) -> &Arc<IncompleteCalls> {
        &self.port
    }

    /// Returns the body of a call that waits for `expected`.
    pub fn body<B>(self: &Arc<Self>, body: B, expected: Expected) -> RequestBody<B> {
        let (calls, framing) = (Arc::clone(self), Framing::default());
        let (message_bytes, had_complete_message, has_yielded) = Default::default();
        RequestBody { body, calls, expected, message_bytes, framing, had_complete_message, has_yielded, wait: None }
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
    fn begin(calls: &Arc<ConnectionCalls>, timed: bool, bytes: usize) -> Result<Self, Status> {
        let port = &calls.port;
        let may_wait =
            calls.connected.is_authenticated() || calls.waiting.load(Ordering::Relaxed) < MAX_WAITING_UNAUTHENTICATED;
        let slot = may_wait.then(|| port.slots.take(calls.owner, CALL_BYTES + bytes));
        let Some(Ok(slot)) = slot else { return Err(port.reject()) };
        calls.waiting.fetch_add(1, Ordering::Relaxed);
        let (end, ended) = oneshot::channel();
        let ends = tokio::spawn(Arc::clone(calls).end(slot.evicted().clone(), timed, end));
        Ok(Self { calls: Arc::clone(calls), slot, ended, _ends: AbortOnDropHandle::new(ends) })
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let ended = ready!(Pin::new(&mut self.ended).poll(cx));
        Poll::Ready(ended.unwrap_or_else(|_| self.calls.port.reject()))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.calls.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B> RequestBody<B> {
    /// Whether any data has arrived or was waited for.
    fn has_begun(&self) -> bool {
        self.wait.is_some()
            || self.message_bytes > 0
            || self.had_complete_message
            || self.framing.unfinished_bytes() > 0
    }

    fn received(&mut self, bytes: &[u8]) -> Result<(), Status> {
        if self.expected == Expected::Stream {
            let had_begun = self.framing.unfinished_bytes() > 0;
            let has_ended = self.framing.advance(bytes);
            self.had_complete_message |= has_ended;
            if has_ended || !had_begun {
                // A message that starts now has its own timeout.
                (self.wait, self.has_yielded) = (None, false);
            }
        } else {
            self.message_bytes += bytes.len();
        }
        let Some(wait) = &mut self.wait else { return Ok(()) };
        wait.slot.grow(bytes.len()).map_err(|Full| self.calls.port.reject())
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let (timed, unfinished) = match (self.expected, self.framing.unfinished_bytes()) {
            (Expected::Message, _) => (true, self.message_bytes),
            (Expected::Stream, unfinished) => (unfinished > 0, unfinished),
        };
        if !timed && self.had_complete_message {
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
            none => match Wait::begin(&self.calls, timed, unfinished) {
                Ok(wait) => none.insert(wait),
                Err(status) => return Poll::Ready(status),
            },
        };
        wait.poll_end(cx)
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let received = frame.data_ref().map_or(Ok(()), |bytes| this.received(bytes));
                Poll::Ready(Some(received.map(|()| frame).map_err(Into::into)))
            }
            Poll::Ready(end) => {
                if matches!(end, Some(Err(_))) && !this.has_begun() {
                    this.calls.connected.count_rapid_reset();
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
