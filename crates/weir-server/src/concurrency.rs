//! Limits on concurrency: requests beyond them are rejected.

use std::sync::Arc;

use metrics::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connected::Overload;

/// A limit on concurrency, or none.
#[derive(Clone)]
pub struct ConcurrencyLimit {
    permits: Option<Arc<Semaphore>>,
    overload: Overload,
    rejected: Counter,
}

/// A permit of the limit, returned on drop; `None` from a limit without a bound.
pub type Permit = Option<OwnedSemaphorePermit>;

impl ConcurrencyLimit {
    /// Makes a limit of `count` permits. Further requests are rejected with `overload`, and counted in `rejected`.
    pub fn new(count: usize, overload: Overload, rejected: Counter) -> Self {
        Self { permits: Some(Arc::new(Semaphore::new(count))), overload, rejected }
    }

    /// Makes a limit that always has a permit.
    pub fn unbounded() -> Self {
        Self { permits: None, overload: Overload::Concurrency, rejected: Counter::noop() }
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// [`Overload`] if none is free.
    #[inline]
    pub fn acquire(&self) -> Result<Permit, Overload> {
        let Some(permits) = &self.permits else { return Ok(None) };
        Arc::clone(permits).try_acquire_owned().map(Some).map_err(|_| {
            self.rejected.increment(1);
            self.overload
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_is_released() {
        let limit = ConcurrencyLimit::new(1, Overload::Open, Counter::noop());
        let held = limit.acquire();
        assert!(held.is_ok());
        assert_eq!(limit.acquire().err(), Some(Overload::Open));
        drop(held);
        assert!(limit.acquire().is_ok() && ConcurrencyLimit::unbounded().acquire().is_ok());
    }
}
