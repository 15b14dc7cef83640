//! The requests of a listener that are under way, where they are bounded in number.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use hyper::body::{Body, Frame, SizeHint};

use super::{lifetime::Busy, watch::Watched};

/// So many requests at once, and no more.
#[derive(Debug)]
pub struct Crowd {
    most: usize,
    under_way: AtomicUsize,
}

/// A place among the requests under way, until this is dropped.
pub struct Place(Arc<Crowd>);

impl Crowd {
    /// At most so many.
    pub fn new(most: usize) -> Self {
        Self { most, under_way: AtomicUsize::new(0) }
    }

    /// A place, where there is one.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let more = |count| (count < self.most).then_some(count + 1);
        let entered = self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.is_ok().then(|| Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a request holds while it is under way, where somebody counts.
#[derive(Default)]
pub struct Held {
    /// Its place among those of the listener.
    pub place: Option<Place>,
    /// That its connection has something to do.
    pub busy: Option<Busy>,
    /// Who is told of it.
    pub watched: Option<Box<Watched>>,
}

/// An answer's body, whose request is under way until this is dropped.
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
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_request_is_over() {
        let crowd = Arc::new(Crowd::new(2));
        let (first, second) = (crowd.enter(), crowd.enter());
        assert!(first.is_some() && second.is_some() && crowd.enter().is_none());
        drop(Counted::new((), Held { place: first, ..Held::default() }));
        let third = crowd.enter();
        assert!(third.is_some() && crowd.enter().is_none());
    }

    #[test]
    fn of_many_at_the_same_moment_as_many_enter_as_there_is_room_for() {
        let crowd = Arc::new(Crowd::new(100));
        let entered: usize = std::thread::scope(|scope| {
            let enter = || (0..1_000).filter_map(|_| crowd.enter()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(enter)).collect();
            let places: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            places.iter().map(Vec::len).sum()
        });
        assert_eq!(entered, 100);
    }
}
