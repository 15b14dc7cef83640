//! What a request holds while it is in flight: from its admission until the body of its answer is sent or dropped.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::{lifetime::Busy, watch::Watched};

/// What a request holds, of what is counted or recorded.
#[derive(Default)]
pub struct Held {
    /// One of the requests in flight that its listener permits.
    pub permit: Option<OwnedSemaphorePermit>,
    /// That its connection has something to do.
    pub busy: Option<Busy>,
    /// Who is told of it.
    pub watched: Option<Box<Watched>>,
}

/// An answer's body, whose request is in flight until this is dropped.
pub struct Counted<B> {
    body: B,
    held: Held,
}

impl<B> Counted<B> {
    /// The body of the request that holds this.
    pub fn new(body: B, held: Held) -> Self {
        Self { body, held }
    }
}

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Self { body, held } = &mut *self;
        match &mut held.watched {
            None => Pin::new(body).poll_frame(cx),
            Some(watched) => watched.poll_frame(body, cx),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn a_permit_is_free_again_when_the_body_of_the_answer_is_dropped() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).try_acquire_owned().ok();
        let body = Counted::new((), Held { permit, ..Held::default() });
        assert_eq!(permits.available_permits(), 0);
        drop(body);
        assert_eq!(permits.available_permits(), 1);
    }
}
