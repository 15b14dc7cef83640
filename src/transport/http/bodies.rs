//! Bounds the bodies that a port is reading together: if they have too many bytes, the oldest unfinished ones of the
//! connection that holds the most are rejected.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{BoxError, body::HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use metrics::Counter;
use thiserror::Error;
use tokio_util::sync::WaitForCancellationFutureOwned;
use weir_server::{Connected, Full, Slot, Slots, metrics::ListenerMetrics};

/// Maximum bytes of the unfinished bodies of a port, or more if two bodies of the maximum size would not fit. Beyond it,
/// others are rejected to make room for a new one.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// Bytes that a waiting body counts for, besides its content.
const BODY_BYTES: usize = 1 << 10;

/// The error when too many bodies are unfinished.
#[derive(Debug, Error)]
#[error("too many bodies are unfinished")]
pub(super) struct TooMany;

/// The unfinished bodies of a port.
#[derive(Clone)]
pub struct Bodies {
    slots: Arc<Slots>,
    /// The owner of the slots of this connection's bodies.
    owner: u64,
    connected: Option<Arc<Connected>>,
    rejected: Counter,
}

/// Returns the maximum bytes of all unfinished bodies of a port, including rejected ones that still exist.
pub fn max_bytes(max_body_bytes: usize) -> usize {
    2 * max_waiting_bytes(max_body_bytes)
}

/// Returns the bytes that bodies may wait with: two bodies of the maximum size fit.
fn max_waiting_bytes(max_body_bytes: usize) -> usize {
    MAX_WAITING_BYTES.max(2 * (max_body_bytes + BODY_BYTES))
}

impl Bodies {
    /// Returns the bodies of a port, none yet. Rejected ones increment `too_many_open`.
    pub fn new(max_body_bytes: usize, metrics: &ListenerMetrics) -> Self {
        let slots = Slots::new(max_waiting_bytes(max_body_bytes), max_bytes(max_body_bytes));
        Self { owner: slots.owner(), slots, connected: None, rejected: metrics.too_many_open.clone() }
    }

    /// Returns the bodies of another connection.
    #[must_use]
    pub fn of(self, connected: &Connected) -> Self {
        Self { owner: self.slots.owner(), connected: Some(Arc::new(connected.clone())), ..self }
    }

    /// Wraps a body, which is counted from the first time that it has to wait.
    pub fn bound<B>(&self, body: B) -> Unfinished<B> {
        Unfinished { body, bytes: 0, slot: None, bodies: self.clone() }
    }

    fn reject(&self) -> TooMany {
        self.rejected.increment(1);
        TooMany
    }
}

/// A body of a request, counted until it is dropped.
pub struct Unfinished<B> {
    body: B,
    bytes: usize,
    /// Set from the first time that the body has to wait.
    slot: Option<(Slot, Pin<Box<WaitForCancellationFutureOwned>>)>,
    bodies: Bodies,
}

impl<B> Unfinished<B> {
    fn add(&mut self, bytes: usize) -> Result<(), TooMany> {
        self.bytes += bytes;
        let grown = self.slot.as_mut().map_or(Ok(()), |(slot, _)| slot.grow(bytes));
        grown.map_err(|Full| self.bodies.reject())
    }

    fn poll_evicted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (_, evicted) = match &mut self.slot {
            Some(slot) => slot,
            none => match self.bodies.slots.take(self.bodies.owner, BODY_BYTES + self.bytes) {
                Ok(slot) => {
                    let evicted = Box::pin(slot.evicted().clone().cancelled_owned());
                    none.insert((slot, evicted))
                }
                Err(Full) => return Poll::Ready(()),
            },
        };
        evicted.as_mut().poll(cx)
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> HttpBody for Unfinished<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let counted = self.add(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(counted.map(|()| frame).map_err(BoxError::from)))
            }
            Poll::Ready(end) => {
                let was_reset = matches!(end, Some(Err(_))) && self.bytes == 0 && self.slot.is_none();
                if was_reset && let Some(connected) = &self.bodies.connected {
                    connected.count_rapid_reset();
                }
                Poll::Ready(end.map(|end| end.map_err(Into::into)))
            }
            Poll::Pending => self.poll_evicted(cx).map(|()| Some(Err(self.bodies.reject().into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
