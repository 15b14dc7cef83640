//! The bounds of the calls that wait: slots of the port, and a timeout.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::http::request::Parts;
use metrics::Counter;
use tokio::{sync::oneshot, time::sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::Status;
use weir_server::{Connected, Full, Overload, Slot, Slots, metrics::ListenerMetrics};

use crate::transport::status::Rejected;

/// Bytes that a waiting call counts for, in addition to its head and its message.
pub(super) const CALL_BYTES: usize = 8 << 10;
/// Bytes of one slot of a header map, also of a free one.
const HEADER_SLOT_BYTES: usize = 112;
/// Bytes of the allocation for a header's name, in addition to its text.
const HEADER_NAME_BYTES: usize = 32;
/// Maximum bytes of a head: 496 headers within 16 KiB, as HTTP/2 counts them, in 768 slots. HTTP/1 accepts 64 KiB of 100
/// headers.
const MAX_HEAD_BYTES: usize = 128 << 10;
/// Maximum bytes of all waiting calls of the port, or more if two of the largest messages would not fit. Beyond it, the
/// oldest call of the connection that holds the most is evicted for a new call. If the new call belongs to that
/// connection, it is rejected instead. So connections with many waiting calls cannot harm one with few.
pub(super) const MAX_WAITING_BYTES: usize = 16 << 20;
/// The same for the calls of connections whose client has not authenticated. Among all calls, connections with a few
/// small ones, in large numbers, would evict every larger message that is on its way.
const MAX_WAITING_UNAUTHENTICATED_BYTES: usize = 4 << 20;
/// Maximum bytes of evicted calls that still exist, because their threads have not run yet. Beyond it a new call is
/// rejected: otherwise a whole burst would be in memory before the first of it is gone.
pub(super) const MAX_ENDING_BYTES: usize = 4 << 20;
/// The same for connections whose client has not authenticated.
const MAX_ENDING_UNAUTHENTICATED_BYTES: usize = 1 << 20;
/// Time for an evicted call to end before its connection is closed. Its body, which ends it, is not polled while the
/// client's flow-control window is full.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of waiting calls of a connection until its client has authenticated.
pub const MAX_WAITING_UNAUTHENTICATED: usize = 16;

/// The calls of a port that wait for their message.
pub struct IncompleteCalls {
    slots: Arc<Slots>,
    /// Slots of connections whose client has not authenticated.
    unauthenticated: Arc<Slots>,
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
    pub(super) waiting: AtomicUsize,
}

/// A waiting call, from the second poll that finds no data.
pub(super) struct Wait {
    calls: Arc<ConnectionCalls>,
    slot: Slot,
    /// Receives the status that the call ends with.
    ended: oneshot::Receiver<Status>,
    _ends: AbortOnDropHandle<()>,
}

/// Returns the maximum bytes of waiting and evicted calls of a port with this message size: two of the largest messages
/// fit.
pub fn max_bytes(max_message_bytes: usize) -> usize {
    max_waiting_bytes(max_message_bytes)
        + MAX_ENDING_BYTES
        + MAX_WAITING_UNAUTHENTICATED_BYTES
        + MAX_ENDING_UNAUTHENTICATED_BYTES
}

fn max_waiting_bytes(max_message_bytes: usize) -> usize {
    MAX_WAITING_BYTES.max(2 * (max_message_bytes + CALL_BYTES + MAX_HEAD_BYTES))
}

/// Returns the bytes that a head takes while its call waits.
pub(super) fn head_bytes(head: &Parts) -> usize {
    let text = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let headers = head.headers.len();
    headers.max(head.headers.capacity()) * HEADER_SLOT_BYTES + headers * HEADER_NAME_BYTES + text + target
}

impl IncompleteCalls {
    /// Returns a port without calls. `timeout` and `max_message_bytes` apply to each message.
    pub fn new(timeout: Duration, max_message_bytes: usize, metrics: &ListenerMetrics) -> Arc<Self> {
        let slots = |waiting, ending| Slots::new(waiting, waiting + ending);
        Arc::new(Self {
            slots: slots(max_waiting_bytes(max_message_bytes), MAX_ENDING_BYTES),
            unauthenticated: slots(MAX_WAITING_UNAUTHENTICATED_BYTES, MAX_ENDING_UNAUTHENTICATED_BYTES),
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

    /// Returns the connection.
    pub fn connected(&self) -> &Connected {
        &self.connected
    }

    /// Ends a call when it is evicted or, if it is `timed`, too late. Closes the connection if an evicted call does not
    /// end.
    async fn end(self: Arc<Self>, evicted: CancellationToken, timed: bool, end: oneshot::Sender<Status>) {
        let port = &self.port;
        // A jitter of up to a tenth, so that the calls of a burst do not end in one moment.
        let timeout = port.timeout.mul_f64(rand::random_range(1.0..1.1));
        let status = tokio::select! {
            biased;
            () = evicted.cancelled() => port.reject(),
            () = sleep(timeout), if timed => {
                port.too_late.increment(1);
                Status::deadline_exceeded("the message of the call did not come in time")
            }
        };
        if end.send(status).is_ok() {
            // A late client may continue, unless the capacity of its call is needed.
            evicted.cancelled().await;
            sleep(END_TIMEOUT).await;
            self.connected.left_unread().cancel();
        }
    }
}

impl Wait {
    /// Starts the wait of a call that holds this many bytes of its request. If it is `timed`, the rest must arrive in time.
    pub(super) fn begin(calls: &Arc<ConnectionCalls>, timed: bool, bytes: usize) -> Result<Self, Status> {
        let port = &calls.port;
        let slots = if calls.connected.is_authenticated() {
            Some(&port.slots)
        } else {
            (calls.waiting.load(Ordering::Relaxed) < MAX_WAITING_UNAUTHENTICATED).then_some(&port.unauthenticated)
        };
        let slot = slots.map(|slots| slots.take(calls.owner, CALL_BYTES + bytes));
        let Some(Ok(slot)) = slot else { return Err(port.reject()) };
        calls.waiting.fetch_add(1, Ordering::Relaxed);
        let (end, ended) = oneshot::channel();
        let ends = tokio::spawn(Arc::clone(calls).end(slot.evicted().clone(), timed, end));
        Ok(Self { calls: Arc::clone(calls), slot, ended, _ends: AbortOnDropHandle::new(ends) })
    }

    /// Adds bytes that the call has received.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        self.slot.grow(bytes).map_err(|Full| self.calls.port.reject())
    }

    /// Returns the status that the call ends with, once it is evicted or late.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let ended = ready!(Pin::new(&mut self.ended).poll(cx));
        Poll::Ready(ended.unwrap_or_else(|_| self.calls.port.reject()))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.calls.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
