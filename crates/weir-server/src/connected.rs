//! What a service learns of a connection, and by what it admits the requests of it.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use weir_core::domain::time::SECOND;

use crate::{
    Traffic,
    close::CloseSignal,
    drain::Drain,
    lifetime::{Activity, Busy},
    metrics::ListenerMeter,
    rate::Rate,
    tls::Bearer,
};

/// A connection, as the service of its requests sees it.
#[derive(Clone)]
pub struct Connected {
    /// When its streams must end.
    pub close: CloseSignal,
    /// How many requests it may make, where that is bounded.
    pub rate: Option<Arc<Rate>>,
    /// What the certificate of its client says, where it has shown one.
    pub bearer: Option<Arc<Bearer>>,
    /// Cancelled once that certificate is not accepted any more.
    pub revoked: CancellationToken,
    permits: Option<Arc<Semaphore>>,
    activity: Option<Arc<Activity>>,
    meter: Option<Arc<ListenerMeter>>,
}

/// Why a request is rejected before it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// Its connection makes too many a second; the next one passes after this time.
    Rate(Duration),
    /// Too many requests of the listener are in flight.
    Concurrency,
}

/// One of the requests in flight of its listener, until this is dropped: keep it as long as the body of the answer.
#[derive(Default)]
pub struct InFlight {
    _permit: Option<OwnedSemaphorePermit>,
    _busy: Option<Busy>,
}

impl Connected {
    /// A connection without bounds, which ends with this drain.
    pub fn new(drain: Drain) -> Self {
        Self {
            close: CloseSignal::new(drain),
            rate: None,
            bearer: None,
            revoked: CancellationToken::new(),
            permits: None,
            activity: None,
            meter: None,
        }
    }

    /// The same, whose client has shown this certificate, good until it is `revoked`.
    pub(crate) fn shown(self, bearer: Option<Arc<Bearer>>, revoked: CancellationToken) -> Self {
        Self { bearer, revoked, ..self }
    }

    /// The same with this rate.
    #[must_use]
    pub fn at(self, rate: Rate) -> Self {
        Self { rate: Some(Arc::new(rate)), ..self }
    }

    /// The same with the bounds and counters of its listener.
    pub(crate) fn bounded(
        self,
        traffic: &Traffic,
        permits: Option<Arc<Semaphore>>,
        activity: Option<Arc<Activity>>,
        meter: Arc<ListenerMeter>,
    ) -> Self {
        let rate = NonZeroU32::new(traffic.max_requests_per_second);
        let rate = rate.map(|most| Arc::new(Rate::new(most, SECOND)));
        Self { rate, permits, activity, meter: Some(meter), ..self }
    }

    /// Counts a request against the rate of its connection.
    ///
    /// # Errors
    /// [`Overload::Rate`] when it comes too early.
    #[inline]
    pub fn pace(&self) -> Result<(), Overload> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.take().map_err(|wait| {
            if let Some(meter) = &self.meter {
                meter.too_fast.increment(1);
            }
            Overload::Rate(wait)
        })
    }

    /// Admits a request. Where there is no permit left, only one that is `exempt` passes.
    ///
    /// # Errors
    /// [`Overload::Concurrency`] when too many are in flight.
    #[inline]
    pub fn admit(&self, exempt: impl FnOnce() -> bool) -> Result<InFlight, Overload> {
        let permit = match &self.permits {
            Some(permits) => {
                let permit = Arc::clone(permits).try_acquire_owned().ok();
                if permit.is_none() && !exempt() {
                    if let Some(meter) = &self.meter {
                        meter.too_many.increment(1);
                    }
                    return Err(Overload::Concurrency);
                }
                permit
            }
            None => None,
        };
        Ok(InFlight { _permit: permit, _busy: self.activity.as_ref().map(Activity::begin) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_free_again_when_its_request_is_done() {
        let permits = Arc::new(Semaphore::new(1));
        let connected = Connected { permits: Some(Arc::clone(&permits)), ..Connected::new(Drain::default()) };
        let held = connected.admit(|| false).ok();
        assert_eq!((permits.available_permits(), connected.admit(|| false).err()), (0, Some(Overload::Concurrency)));
        assert!(connected.admit(|| true).is_ok());
        drop(held);
        assert!(connected.admit(|| false).is_ok());
    }
}
