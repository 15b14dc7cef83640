//! A bound on what is under way at once. Beyond it what is new is refused.

use std::sync::Arc;

use metrics::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connected::Overload;

/// So many places, or any number.
#[derive(Clone)]
pub struct Places {
    permits: Option<Arc<Semaphore>>,
    overload: Overload,
    refused: Counter,
}

/// One place, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// At most `count`. Beyond it requests are rejected with this `overload`, and counted.
    pub fn new(count: usize, overload: Overload, refused: Counter) -> Self {
        Self { permits: Some(Arc::new(Semaphore::new(count))), overload, refused }
    }

    /// Without a bound.
    pub fn unbounded() -> Self {
        Self { permits: None, overload: Overload::Concurrency, refused: Counter::noop() }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// [`Overload`] where none is free.
    #[inline]
    pub fn take(&self) -> Result<Place, Overload> {
        let Some(permits) = &self.permits else { return Ok(Place { _permit: None }) };
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            self.refused.increment(1);
            return Err(self.overload);
        };
        Ok(Place { _permit: Some(permit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let places = Places::new(1, Overload::Open, Counter::noop());
        let held = places.take();
        assert!(held.is_ok());
        assert_eq!(places.take().err(), Some(Overload::Open));
        drop(held);
        assert!(places.take().is_ok() && Places::unbounded().take().is_ok());
    }
}
