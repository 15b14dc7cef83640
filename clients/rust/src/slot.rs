//! Slots of concurrency limits, held while work is in progress.

use std::time::Duration;

use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    time::{Instant, sleep},
};

use crate::{Acquired, Client, Error, Reservation, Reserve, Settlement};

/// Retry interval after a failed extension; shorter if the slot would expire before.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A slot, held while this value lives: it is extended in the background at a third of its `ttl`. Give it back with
/// [`release`](Self::release); a dropped slot is given back in the background.
#[derive(Debug)]
pub struct Slot {
    lost: watch::Receiver<bool>,
    release: Option<oneshot::Sender<oneshot::Sender<Result<Settlement, Error>>>>,
}

impl Client {
    /// Takes a slot of each concurrency limit on the key's path; the cost is charged to the other limits.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub async fn slot(&self, reserve: impl Into<Reserve>) -> Result<Acquired<Slot>, Error> {
        let reserve = reserve.into();
        let ttl = reserve.ttl;
        Ok(self.reserve(reserve).await?.map(|reservation| {
            let (lost_sender, lost) = watch::channel(false);
            let (release, released) = oneshot::channel();
            // This future is polled, so there is a runtime.
            Handle::current().spawn(hold(reservation, ttl, lost_sender, released));
            Slot { lost, release: Some(release) }
        }))
    }
}

impl Slot {
    /// Whether the slot is lost: it has expired, or the service could not be reached until then. Another client may
    /// hold it now.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until the slot is lost, possibly forever: for `select!` beside the work.
    pub async fn lost(&self) {
        // Without a sender the slot is settled and can no longer be lost.
        if self.lost.clone().wait_for(|lost| *lost).await.is_err() {
            std::future::pending().await
        }
    }

    /// Gives the slot back and waits for the service's confirmation.
    ///
    /// # Errors
    /// `NotFound`: the slot was lost. After an outage it is free after its `ttl`.
    pub async fn release(mut self) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        let gone = || Error::NotFound("the slot is lost".to_owned());
        let release = self.release.take().ok_or_else(gone)?;
        release.send(answer).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?.map(drop)
    }
}

/// Extends a reservation until it is released or lost.
async fn hold(
    mut reservation: Reservation,
    ttl: Option<Duration>,
    lost: watch::Sender<bool>,
    mut released: oneshot::Receiver<oneshot::Sender<Result<Settlement, Error>>>,
) {
    let mut expires = Instant::now() + reservation.expires_after();
    let mut next = reservation.expires_after() / 3;
    // After an attempt that times out there is time for two more.
    let mut sixth = reservation.expires_after() / 6;
    loop {
        tokio::select! {
            answer = &mut released => {
                // The work is done, so the other limits are charged.
                let settled = reservation.commit(None).await;
                if let Ok(answer) = answer {
                    // The caller may have gone.
                    let _ = answer.send(settled);
                }
                return;
            }
            () = sleep(next), if !reservation.is_fallback() => {}
        }
        match reservation.extend_within(sixth, ttl).await {
            Ok(()) => {
                expires = Instant::now() + reservation.expires_after();
                next = reservation.expires_after() / 3;
                sixth = reservation.expires_after() / 6;
            }
            Err(error) if !error.is_outage() || Instant::now() >= expires => {
                tracing::warn!(%error, "the slot is lost");
                lost.send_replace(true);
                reservation.forget();
                return;
            }
            Err(_) => next = RETRY_EVERY.min(sixth).min(expires.saturating_duration_since(Instant::now())),
        }
    }
}
