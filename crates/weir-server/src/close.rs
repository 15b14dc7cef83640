//! The signal that ends long-lived streams of a connection: the service's drain, or the connection's own close.

use std::sync::Arc;

use tokio::sync::SetOnce;

use crate::{drain::Drain, lifetime::CloseReason};

/// The close signal for the streams of one connection.
#[derive(Clone, Debug)]
pub struct CloseSignal {
    drain: Drain,
    own: Arc<SetOnce<CloseReason>>,
}

impl CloseSignal {
    /// Makes the signal that this drain or [`CloseSignal::close`] gives.
    pub fn new(drain: Drain) -> Self {
        Self { drain, own: Arc::default() }
    }

    /// Closes the streams of this connection only, for this reason.
    pub fn close(&self, why: CloseReason) {
        // The first reason stays.
        self.own.set(why).ok();
    }

    /// Returns why streams must end; `None`: they need not.
    #[inline]
    pub fn closed(&self) -> Option<CloseReason> {
        if self.drain.has_started() { Some(CloseReason::Drain) } else { self.own.get().copied() }
    }

    /// Waits until streams must end, and returns why.
    pub async fn wait(self) -> CloseReason {
        tokio::select! {
            biased;
            () = self.drain.started() => CloseReason::Drain,
            why = self.own.wait() => *why,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_closes_its_own_streams_and_a_drain_closes_all() {
        let drain = Drain::default();
        let (own, other) = (CloseSignal::new(drain.clone()), CloseSignal::new(drain.clone()));
        assert!(own.closed().is_none() && own.clone().wait().now_or_never().is_none());
        own.clone().close(CloseReason::Age);
        assert_eq!((own.closed(), own.wait().await), (Some(CloseReason::Age), CloseReason::Age));
        assert!(other.closed().is_none());
        drain.finish(std::time::Duration::ZERO).await;
        assert_eq!(other.wait().await, CloseReason::Drain);
    }
}
