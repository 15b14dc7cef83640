//! The bodies that a port is reading, bounded together: where they have too many bytes, the oldest unfinished ones are rejected.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    BoxError, Router,
    body::{Body, HttpBody},
    extract::Request,
    middleware::map_request,
};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use metrics::Counter;
use thiserror::Error;
use weir_server::{Slots, metrics::ListenerMeter};

/// Most bytes of all unfinished bodies of a port.
pub const MAX_UNFINISHED_BYTES: usize = 32 << 20;
/// Most bodies that wait for more.
const MAX_WAITING: usize = 16_384;

/// Too many are unfinished.
#[derive(Debug, Error)]
#[error("too many bodies are unfinished")]
pub(super) struct TooMany;

struct Bodies {
    bytes: AtomicUsize,
    slots: Arc<Slots>,
    rejected: Counter,
}

/// The same routes, whose bodies are bounded together. Those that are rejected are counted as calls that are open.
pub fn bounded(routes: Router, meter: &ListenerMeter) -> Router {
    let (slots, rejected) = (Slots::new(MAX_WAITING), meter.too_many_open.clone());
    let bodies = Arc::new(Bodies { bytes: AtomicUsize::new(0), slots, rejected });
    routes.layer(map_request(move |request: Request| {
        let bodies = Arc::clone(&bodies);
        async move { request.map(|body| Body::new(Unfinished { body, bytes: 0, evicted: None, bodies })) }
    }))
}

/// A body until it is dropped.
struct Unfinished {
    body: Body,
    bytes: usize,
    /// Its slot, from the first time that it has to wait.
    evicted: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    bodies: Arc<Bodies>,
}

impl Unfinished {
    /// More bytes have come.
    fn add(&mut self, bytes: usize) -> Result<(), TooMany> {
        self.bytes += bytes;
        let all = self.bodies.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if bytes > 0 && all > MAX_UNFINISHED_BYTES / 2 {
            self.bodies.slots.evict_oldest();
        }
        if all > MAX_UNFINISHED_BYTES { Err(self.reject()) } else { Ok(()) }
    }

    fn reject(&self) -> TooMany {
        self.bodies.rejected.increment(1);
        TooMany
    }

    fn poll_evicted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let slots = &self.bodies.slots;
        let wait = || {
            let slot = slots.take();
            Box::pin(async move { slot.evicted().await }) as Pin<Box<dyn Future<Output = ()> + Send>>
        };
        self.evicted.get_or_insert_with(wait).as_mut().poll(cx)
    }
}

impl HttpBody for Unfinished {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let counted = self.add(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(counted.map(|()| frame).map_err(BoxError::from)))
            }
            Poll::Ready(end) => Poll::Ready(end.map(|end| end.map_err(axum::Error::into_inner))),
            Poll::Pending => self.poll_evicted(cx).map(|()| Some(Err(self.reject().into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.bodies.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
