//! Slots of concurrency limits, held while work is in progress.

use std::time::Duration;

use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    time::{Instant, sleep_until},
};

use crate::{Acquired, Client, Error, Reservation, Reserve, Settlement};

/// A slot, held while this value lives: it is extended in the background at a third of its `ttl`. Release it with
/// [`release`](Self::release); a dropped slot is released in the background.
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
        // The service counts the `ttl` from a later moment.
        let asked = Instant::now();
        Ok(self.reserve(reserve).await?.map(|reservation| {
            let (lost_sender, lost) = watch::channel(false);
            let (release, released) = oneshot::channel();
            // This future is polled, so there is a runtime.
            Handle::current().spawn(hold(reservation, asked, ttl, lost_sender, released));
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

    /// Waits until the slot is lost, possibly forever: for `select!` with the work.
    pub async fn lost(&self) {
        // Without a sender the slot is settled and can no longer be lost.
        if self.lost.clone().wait_for(|lost| *lost).await.is_err() {
            std::future::pending().await
        }
    }

    /// Releases the slot and waits for the service's confirmation.
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

/// Extends a reservation, which was asked for at this time, until it is released or lost.
async fn hold(
    mut reservation: Reservation,
    asked: Instant,
    ttl: Option<Duration>,
    lost: watch::Sender<bool>,
    mut released: oneshot::Receiver<oneshot::Sender<Result<Settlement, Error>>>,
) {
    let mut expires = asked + reservation.expires_after();
    let mut next = (reservation.expires_after() / 3).saturating_sub(asked.elapsed());
    // Limits an attempt, and is the pause after one that fails.
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
            () = sleep_until(expires.min(Instant::now() + next)), if !reservation.is_fallback() => {}
        }
        let asked = Instant::now();
        let left = expires.saturating_duration_since(asked);
        let extended = if left.is_zero() {
            Err(Error::NotFound("the slot has expired".to_owned()))
        } else {
            reservation.extend_within(sixth.min(left), ttl).await
        };
        match extended {
            Ok(()) => {
                expires = asked + reservation.expires_after();
                next = reservation.expires_after() / 3;
                sixth = reservation.expires_after() / 6;
            }
            Err(error) if matches!(error, Error::NotFound(_)) || Instant::now() >= expires => {
                tracing::warn!(%error, "the slot is lost");
                lost.send_replace(true);
                reservation.forget();
                return;
            }
            Err(_) => next = sixth,
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use tokio::{sync::mpsc::unbounded_channel, time::timeout};
    use tonic::Code;

    use super::*;
    use crate::{
        fake_service::{Call, serve, virtual_time},
        limit::duration,
        proto::{CheckResponse, ExtendResponse, ReserveResponse},
    };

    const TTL: Duration = Duration::from_secs(12);

    /// Takes a slot from a service that needs 1.5 s for it, and then answers extensions by `extend`. Returns it with
    /// the time before.
    async fn slot(mut extend: impl FnMut(Call) + Send + 'static) -> (Slot, Instant) {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("weir.sock");
        let mut calls = serve(&socket);
        tokio::spawn(async move {
            let _dir = dir;
            while let Some(call) = calls.recv().await {
                if call.method == "Extend" {
                    extend(call);
                    continue;
                }
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                let decision = Some(CheckResponse { allowed: true, ..CheckResponse::default() });
                call.answer(&ReserveResponse { decision, hold: "1".to_owned(), expires_after: duration(TTL) });
            }
        });
        let target = format!("unix:{}", socket.display());
        let weir = Client::builder(target).deadline(TTL).build().expect("a client");
        let asked = Instant::now();
        let acquired = weir.slot(Reserve::new(["exports"]).ttl(TTL)).await.expect("an answer");
        (acquired.into_result().expect("a slot"), asked)
    }

    /// Waits until the slot is lost. Returns the whole tenths of a second since it was asked for.
    async fn lost_after(slot: &Slot, asked: Instant) -> u128 {
        slot.lost().await;
        assert!(slot.is_lost());
        asked.elapsed().as_millis() / 100
    }

    #[tokio::test]
    async fn a_slot_that_is_not_extended_is_lost_when_it_expires() {
        virtual_time();
        let mut unanswered = Vec::new();
        let (held, asked) = slot(move |call| unanswered.push(call)).await;
        assert_eq!(lost_after(&held, asked).await, 120);
    }

    #[tokio::test]
    async fn a_slot_is_lost_at_once_only_if_the_service_does_not_know_it() {
        virtual_time();
        for code in [Code::Unauthenticated, Code::PermissionDenied, Code::Unimplemented, Code::Unavailable] {
            let (attempt, mut attempts) = unbounded_channel();
            let (held, asked) = slot(move |call| {
                attempt.send(Instant::now()).expect("the test waits");
                call.fail(code);
            })
            .await;
            assert_eq!(lost_after(&held, asked).await, 120, "{code:?}");
            // After a third of its time, and then each sixth.
            let mut times: Vec<_> =
                std::iter::from_fn(|| Some((attempts.try_recv().ok()? - asked).as_secs())).collect();
            // A call that ended with UNAVAILABLE is repeated immediately.
            times.dedup();
            assert_eq!(times, [4, 6, 8, 10], "{code:?}");
        }
        let (held, asked) = slot(|call| call.fail(Code::NotFound)).await;
        // After a third of its time, counted from the request.
        assert_eq!(lost_after(&held, asked).await, 40);
    }

    #[tokio::test]
    async fn a_slot_whose_caller_gives_up_is_released() {
        virtual_time();
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("weir.sock");
        let mut calls = serve(&socket);
        let target = format!("unix:{}", socket.display());
        let weir = Client::builder(target).deadline(TTL).build().expect("a client");
        assert!(timeout(TTL / 12, weir.slot(["exports"])).await.is_err());
        let decision = Some(CheckResponse { allowed: true, ..CheckResponse::default() });
        let held = ReserveResponse { decision, hold: "1".to_owned(), expires_after: duration(TTL) };
        calls.recv().await.expect("a reservation").answer(&held);
        let next = timeout(TTL, calls.recv()).await.expect("a call in time").expect("a call");
        assert_eq!(next.method, "Cancel");
    }

    #[tokio::test]
    async fn a_slot_outlives_the_rotation_of_a_token() {
        virtual_time();
        let mut failures = 2;
        let (held, asked) = slot(move |call| {
            if failures > 0 {
                failures -= 1;
                return call.fail(Code::Unauthenticated);
            }
            call.answer(&ExtendResponse { expires_after: duration(TTL), ..ExtendResponse::default() });
        })
        .await;
        sleep_until(asked + 3 * TTL).await;
        assert!(!held.is_lost());
    }
}
