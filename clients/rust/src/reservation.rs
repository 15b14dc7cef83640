//! Reservations: units held until their real cost is known.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::{
    Check, Client, Decision, Error,
    call::{MAX_DEADLINE, Repeat, unary},
    limit::duration,
    proto::{CancelRequest, CancelResponse, CommitRequest, CommitResponse, ExtendRequest, OnExpiry, ReserveRequest},
};

/// A check whose units are to be reserved, and for how long.
///
/// ```
/// use std::time::Duration;
/// use weir_client::{Check, Reserve};
///
/// let tokens = Reserve::new(Check::new(["tenant", "acme"]).domain("llm").cost(1_200)).ttl(Duration::from_secs(120));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a reservation is made when a client sends it"]
pub struct Reserve {
    check: Check,
    pub(crate) ttl: Option<Duration>,
    on_expiry: OnExpiry,
}

impl<C: Into<Check>> From<C> for Reserve {
    fn from(check: C) -> Self {
        Self::new(check)
    }
}

impl Reserve {
    /// Reserves the cost of this check, the estimate.
    pub fn new(check: impl Into<Check>) -> Self {
        Self { check: check.into(), ttl: None, on_expiry: OnExpiry::Unspecified }
    }

    /// Sets how long the units are held unless extended: 10 ms to 24 hours. Default: the `ttl` of the concurrency
    /// limits on the path; required without such limits.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the outcome of a reservation that is not settled in time. Default: [`OnExpiry::Keep`], so it counts as
    /// spent.
    pub fn on_expiry(mut self, on_expiry: OnExpiry) -> Self {
        self.on_expiry = on_expiry;
        self
    }
}

/// The result of a reservation.
#[derive(Debug)]
#[must_use = "the held units are refunded when it is dropped"]
pub enum Acquired<T> {
    /// The units or the slot are held.
    Held(T),
    /// The limits refused the request.
    Refused(Box<Decision>),
}

impl<T> Acquired<T> {
    /// Converts a refusal into an error.
    ///
    /// # Errors
    /// The refusal.
    pub fn into_result(self) -> Result<T, Box<Decision>> {
        match self {
            Self::Held(held) => Ok(held),
            Self::Refused(decision) => Err(decision),
        }
    }

    pub(crate) fn map<U>(self, with: impl FnOnce(T) -> U) -> Acquired<U> {
        match self {
            Self::Held(held) => Acquired::Held(with(held)),
            Self::Refused(decision) => Acquired::Refused(decision),
        }
    }
}

/// The result of settling a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settlement {
    /// The units charged in total.
    pub charged: u64,
    /// The units refunded.
    pub refunded: u64,
    /// The units charged beyond the reserved units.
    pub overage: u64,
    /// Whether nothing was held, so that settling changed nothing: [`OnFailure`](crate::OnFailure) decided, or a service
    /// without its shared store, by a check that charged the units.
    pub degraded: bool,
}

const NOTHING_HELD: Settlement = Settlement { charged: 0, refunded: 0, overage: 0, degraded: true };

/// Held units. Settle them with [`commit`](Self::commit) or [`cancel`](Self::cancel).
///
/// If dropped unsettled, for example when the work failed, the reservation is cancelled in the background; if that
/// fails too, [`on_expiry`](Reserve::on_expiry) applies.
#[derive(Debug)]
pub struct Reservation {
    client: Client,
    hold: Hold,
    decision: Decision,
    expires_after: Duration,
}

/// The text that names a reservation; empty if there is nothing to settle: it is settled already, or the service did
/// not make it.
struct Hold(String);

// The text is a credential: it suffices to settle the reservation.
impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "open" })
    }
}

impl Client {
    /// Reserves the units of a check until their real cost is known.
    ///
    /// Without a service, [`OnFailure::Allow`](crate::OnFailure::Allow) returns a reservation that holds nothing.
    ///
    /// # Errors
    /// As [`check`](Self::check); `FailedPrecondition` if a limit on the path cannot be reserved.
    pub async fn reserve(&self, reserve: impl Into<Reserve>) -> Result<Acquired<Reservation>, Error> {
        let Reserve { check, ttl, on_expiry } = reserve.into();
        let check = self.prepared(check);
        let repeat = Repeat::from(&*check.request);
        let deadline = check.deadline;
        let on_failure = self.on_failure(&check).unwrap_or_default();
        let domain = check.request.domain.clone();
        let message = ReserveRequest {
            check: Some(check.into_request()),
            ttl: ttl.and_then(duration),
            on_expiry: on_expiry.into(),
        };
        let client = self.clone();
        // The service may hold the units by the time that the caller drops this future. A task receives the answer
        // nevertheless, and drops the reservation, which cancels it.
        let made = tokio::spawn(async move {
            let response = client.call(deadline, message, repeat, unary!(reserve)).await?;
            let expires_after = response.expires_after.and_then(|time| time.try_into().ok()).unwrap_or_default();
            let decision = response.decision.unwrap_or_default().into();
            Ok(Reservation { client, hold: Hold(response.hold), decision, expires_after })
        });
        let mut reservation = None;
        let decide = async {
            match made.await.unwrap_or_else(|_| Err(Error::closed())) {
                Ok(made) => Ok(reservation.insert(made).decision.clone()),
                Err(error) => Decision::fallback(on_failure, error),
            }
        };
        let decision = self.inner.telemetry.observe(&domain, decide).await?;
        if !decision.allowed {
            return Ok(Acquired::Refused(Box::new(decision)));
        }
        Ok(Acquired::Held(reservation.unwrap_or_else(|| Reservation {
            client: self.clone(),
            hold: Hold(String::new()),
            decision,
            expires_after: ttl.unwrap_or_default().min(MAX_DEADLINE),
        })))
    }
}

impl Reservation {
    /// Returns the decision that made the reservation.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the time until expiry as of its creation or last extension: between 15/16 of its `ttl` and its `ttl`.
    pub fn expires_after(&self) -> Duration {
        self.expires_after
    }

    /// Settles the reservation with its real cost; `None`: the reserved cost. A higher cost is charged in any case.
    ///
    /// # Errors
    /// `NotFound`: the reservation has ended. After an outage it expires.
    pub async fn commit(mut self, actual: impl Into<Option<u64>>) -> Result<Settlement, Error> {
        let actual = actual.into().map(|units| i64::try_from(units).unwrap_or(i64::MAX));
        let Some(hold) = self.take() else { return Ok(NOTHING_HELD) };
        let message = CommitRequest { hold, actual };
        self.client.call(None, message, Repeat::Safe, unary!(commit)).await.map(Settlement::from)
    }

    /// Refunds all units.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn cancel(mut self) -> Result<Settlement, Error> {
        let Some(hold) = self.take() else { return Ok(NOTHING_HELD) };
        cancel(&self.client, hold).await
    }

    /// Extends the reservation to this time from now on.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn extend(&mut self, ttl: Duration) -> Result<(), Error> {
        self.extend_within(Duration::MAX, Some(ttl)).await
    }

    /// Extends by `ttl`, or by the ttl of the concurrency limits on the path. `deadline` limits the call if it is
    /// shorter than the client's.
    pub(crate) async fn extend_within(&mut self, deadline: Duration, ttl: Option<Duration>) -> Result<(), Error> {
        if self.hold.0.is_empty() {
            return Ok(());
        }
        let message = ExtendRequest { hold: self.hold.0.clone(), ttl: ttl.and_then(duration) };
        let deadline = deadline.min(self.client.inner.deadline);
        let response = self.client.call(Some(deadline), message, Repeat::Safe, unary!(extend)).await?;
        self.expires_after = response.expires_after.and_then(|time| time.try_into().ok()).unwrap_or_default();
        Ok(())
    }

    /// Whether there is nothing to settle.
    pub(crate) fn is_fallback(&self) -> bool {
        self.hold.0.is_empty()
    }

    /// Drops a reservation that has ended, without a call.
    pub(crate) fn forget(mut self) {
        self.take();
    }

    fn take(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.hold.0)).filter(|hold| !hold.is_empty())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(hold) = self.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let client = self.client.clone();
            runtime.spawn(async move {
                if let Err(error) = cancel(&client, hold).await {
                    tracing::debug!(%error, "a reservation was not cancelled");
                }
            });
        }
    }
}

async fn cancel(client: &Client, hold: String) -> Result<Settlement, Error> {
    client.call(None, CancelRequest { hold }, Repeat::Safe, unary!(cancel)).await.map(Settlement::from)
}

fn units(units: i64) -> u64 {
    units.try_into().unwrap_or_default()
}

impl From<CommitResponse> for Settlement {
    fn from(response: CommitResponse) -> Self {
        let CommitResponse { charged, refunded, overage, degraded } = response;
        Self { charged: units(charged), refunded: units(refunded), overage, degraded }
    }
}

impl From<CancelResponse> for Settlement {
    fn from(response: CancelResponse) -> Self {
        let CancelResponse { charged, refunded, degraded } = response;
        Self { charged: units(charged), refunded: units(refunded), overage: 0, degraded }
    }
}
