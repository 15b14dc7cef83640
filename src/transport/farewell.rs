//! The end of what goes on for long by one connection: that of the service, or the connection's own.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    drain::Drain,
    rate::Rate,
    status::{shutting_down, too_old},
};

/// What the calls of a connection need to know of it.
#[derive(Clone, Debug)]
pub struct Connected {
    /// When its streams are to end.
    pub farewell: Farewell,
    /// How many requests it may make, where that is bounded.
    pub rate: Option<Arc<Rate>>,
}

impl Connected {
    /// Of a connection that ends with this drain.
    pub fn new(drain: Drain, rate: Option<Arc<Rate>>) -> Self {
        Self { farewell: Farewell::new(drain), rate }
    }
}

/// Tells the streams of one connection that they are to end.
#[derive(Clone, Debug)]
pub struct Farewell {
    drain: Drain,
    own: Arc<Own>,
}

#[derive(Debug, Default)]
struct Own {
    /// Cheaper to look at than the token, which is for waiting.
    said: AtomicBool,
    token: CancellationToken,
}

impl Farewell {
    /// Said by this drain, or by [`Farewell::say`].
    pub fn new(drain: Drain) -> Self {
        Self { drain, own: Arc::default() }
    }

    /// Says it to the streams of this connection.
    pub fn say(&self) {
        self.own.said.store(true, Ordering::Relaxed);
        self.own.token.cancel();
    }

    /// How streams end, once they are to.
    #[inline]
    pub fn said(&self) -> Option<Status> {
        if self.drain.has_begun() {
            Some(shutting_down())
        } else if self.own.said.load(Ordering::Relaxed) {
            Some(too_old())
        } else {
            None
        }
    }

    /// Waits until streams are to end, and tells how.
    pub async fn wait(self) -> Status {
        tokio::select! {
            biased;
            () = self.drain.begun() => shutting_down(),
            () = self.own.token.cancelled() => too_old(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_says_it_to_its_own_streams_alone_and_the_drain_to_all() {
        let drain = Drain::default();
        let (own, other) = (Farewell::new(drain.clone()), Farewell::new(drain.clone()));
        assert!(own.said().is_none() && own.clone().wait().now_or_never().is_none());
        own.clone().say();
        assert_eq!(own.said().map(|status| status.message().to_owned()), Some(too_old().message().to_owned()));
        assert_eq!(own.wait().await.message(), too_old().message());
        assert!(other.said().is_none());
        drain.finish(std::time::Duration::ZERO).await;
        assert_eq!(other.wait().await.message(), shutting_down().message());
    }
}
