//! Calls whose message has not come, or not all of it. They are bounded in time, in bytes and in number: for the port, where the oldest makes
//! room, and for a connection whose client has not authenticated. A call whose message comes with its head is not among them.

mod framing;

use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::{Body, Bytes, Frame};
use metrics::Counter;
use tokio::time::sleep;
use tonic::Status;
use tower::BoxError;
use weir_server::{Connected, Overload, Slots, metrics::ListenerMeter};

use crate::transport::status::Rejected;
use framing::Framing;

/// Most calls of the port that wait for their message. A further one of a connection that has its share of them is refused; for
/// any other the oldest is ended. So one that has few is not harmed by those that have many.
const MAX_WAITING: usize = 2_048;
/// Most of them with those that are ended but not gone, as their threads have not come to it. Beyond it the new one is refused:
/// otherwise a burst would stand there whole before the first of it is gone.
pub const MAX_WAITING_OR_ENDING: usize = MAX_WAITING + 512;
/// Most of one connection, until its client has authenticated.
pub const MAX_WAITING_UNAUTHENTICATED: usize = 16;
/// Most bytes of unfinished messages. From the half of it on the oldest call is ended for more.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// The calls of a port that wait for their message.
pub struct Arrivals {
    slots: Arc<Slots>,
    /// Those that have a slot, or had one and are not gone.
    waiting: AtomicUsize,
    /// The connections that have such calls.
    connections: AtomicUsize,
    bytes: AtomicUsize,
    timeout: Duration,
    too_many: Counter,
    too_late: Counter,
}

/// Those of one connection.
pub struct ConnectionArrivals {
    port: Arc<Arrivals>,
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
    wait: Option<Wait>,
}

/// A call that waits, from the first time that its body was not there.
struct Wait {
    counted: Counted,
    /// Ends it.
    end: Pin<Box<dyn Future<Output = Status> + Send>>,
}

/// How a waiting call is counted.
struct Counted {
    arrivals: Arc<ConnectionArrivals>,
    bytes: usize,
}

impl Arrivals {
    /// None yet. A message may take so long.
    pub fn new(timeout: Duration, meter: &ListenerMeter) -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::new(MAX_WAITING),
            waiting: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            timeout,
            too_many: meter.too_many_open.clone(),
            too_late: meter.message_timeout.clone(),
        })
    }

    /// Those of this connection.
    pub fn of(self: &Arc<Self>, connected: Connected) -> Arc<ConnectionArrivals> {
        Arc::new(ConnectionArrivals { port: Arc::clone(self), connected, waiting: AtomicUsize::new(0) })
    }

    fn refuse(&self) -> Status {
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
        ArrivingBody { body, arrivals, awaited, message_bytes: 0, framing, has_asked: false, wait: None }
    }
}

impl Wait {
    /// A call of which so many bytes have come; `timed`, where the rest has to come in time.
    fn begin(arrivals: &Arc<ConnectionArrivals>, timed: bool, bytes: usize) -> Result<Self, Status> {
        let all = arrivals.port.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = arrivals.waiting.fetch_add(1, Ordering::Relaxed);
        if waiting == 0 {
            arrivals.port.connections.fetch_add(1, Ordering::Relaxed);
        }
        let mut counted = Counted { arrivals: Arc::clone(arrivals), bytes: 0 };
        let is_known = arrivals.connected.is_authenticated();
        let share = MAX_WAITING / arrivals.port.connections.load(Ordering::Relaxed).max(1);
        let has_share = all >= MAX_WAITING && waiting >= share;
        if has_share || all >= MAX_WAITING_OR_ENDING || waiting >= MAX_WAITING_UNAUTHENTICATED && !is_known {
            return Err(arrivals.port.refuse());
        }
        counted.add(bytes)?;
        let port = Arc::clone(&arrivals.port);
        let slot = port.slots.take();
        let end = Box::pin(async move {
            let late = async {
                if !timed {
                    pending::<()>().await;
                }
                sleep(port.timeout).await;
            };
            tokio::select! {
                biased;
                () = slot.evicted() => port.refuse(),
                () = late => {
                    port.too_late.increment(1);
                    Status::deadline_exceeded("the message of the call did not come in time")
                }
            }
        });
        Ok(Self { counted, end })
    }
}

impl Counted {
    /// More bytes have come.
    fn add(&mut self, bytes: usize) -> Result<(), Status> {
        let port = &self.arrivals.port;
        self.bytes += bytes;
        let all = port.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > MAX_WAITING_BYTES {
            return Err(port.refuse());
        }
        if all > MAX_WAITING_BYTES / 2 {
            port.slots.evict_oldest();
        }
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.arrivals.port.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.arrivals.port.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.arrivals.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.arrivals.port.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<B> ArrivingBody<B> {
    fn came(&mut self, bytes: &[u8]) -> Result<(), Status> {
        if self.awaited == Awaited::Stream {
            let had_begun = self.framing.unfinished_bytes() > 0;
            let has_ended = self.framing.advance(bytes);
            self.has_asked |= has_ended;
            if has_ended || !had_begun {
                // A message that begins now has its own timeout.
                self.wait = None;
            }
        } else {
            self.message_bytes += bytes.len();
        }
        self.wait.as_mut().map_or(Ok(()), |wait| wait.counted.add(bytes.len()))
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
            none => match Wait::begin(&self.arrivals, timed, unfinished) {
                Ok(wait) => none.insert(wait),
                Err(status) => return Poll::Ready(status),
            },
        };
        wait.end.as_mut().poll(cx)
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
