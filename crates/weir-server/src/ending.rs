//! The end of a connection: what closes it, and how long it stays open after GOAWAY.

use std::{error::Error, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    close::CloseSignal,
    drain::Drain,
    lifetime::{CloseReason, Lifetime},
    metrics::ListenerMetrics,
    unread::Unread,
};

/// Grace period of a connection after GOAWAY.
pub(crate) const GOAWAY_GRACE: Duration = Duration::from_secs(1);
/// Grace period of an evicted connection whose client has not authenticated: for the status of a health watch, or for a
/// first call that crosses the GOAWAY.
const UNAUTHENTICATED_GRACE: Duration = Duration::from_millis(100);
/// Time for which a connection without a request stays open while the service drains: its first call may be on its way
/// from a delayed client, which cannot tell that a call sent to a closing connection was not carried out. Also for the
/// answers to a client that has not authenticated, such as a probe or a scrape.
pub(crate) const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until the connection exceeds a bound on abuse, and returns which.
pub(crate) async fn abuse(unread: &Unread, rapid_resets: &CancellationToken) -> CloseReason {
    tokio::select! {
        () = unread.too_many().cancelled() => CloseReason::Unread,
        () = rapid_resets.cancelled() => CloseReason::RapidReset,
    }
}

/// Whether HTTP/2 has ended a connection for what its client sent: more small frames than its streams could read, or
/// endless headers or resets.
pub(crate) fn is_flood(error: &(dyn Error + 'static)) -> bool {
    let Some(error) = error.downcast_ref::<h2::Error>() else { return error.source().is_some_and(is_flood) };
    error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
}

pub(crate) fn count(why: CloseReason, metrics: &ListenerMetrics) {
    match why {
        CloseReason::Age => metrics.aged.increment(1),
        CloseReason::Idle => metrics.idle.increment(1),
        CloseReason::Evicted => metrics.evicted.increment(1),
        CloseReason::Unread => metrics.left_unread.increment(1),
        CloseReason::RapidReset => metrics.rapid_resets.increment(1),
        CloseReason::Drain | CloseReason::Revoked | CloseReason::Silent => {}
    }
}

/// Waits for `end` and the grace period after GOAWAY.
pub(crate) async fn after_grace(end: impl Future<Output = ()>) {
    end.await;
    sleep(GOAWAY_GRACE).await;
}

/// Waits until a connection must be closed after GOAWAY. Its streams are ended before.
pub(crate) async fn force_close(
    why: CloseReason,
    grace: Duration,
    drain: &Drain,
    close: &CloseSignal,
    lifetime: &Lifetime,
) {
    if why == CloseReason::Evicted {
        close.close(why);
        if !lifetime.activity.is_authenticated() {
            if !lifetime.slot.must_hurry() {
                sleep(UNAUTHENTICATED_GRACE).await;
            }
            if !lifetime.activity.is_authenticated() {
                return;
            }
        }
    }
    // Nothing to complete, twice: a request may cross the GOAWAY.
    let complete = async {
        let mut was_complete = false;
        loop {
            let is_complete = lifetime.has_nothing_to_complete(why);
            if is_complete && was_complete {
                return;
            }
            was_complete = is_complete;
            sleep(if is_complete && why == CloseReason::Drain { FIRST_CALL_TIMEOUT } else { GOAWAY_GRACE }).await;
        }
    };
    let alone = async {
        sleep(grace).await;
        close.close(why);
        sleep(GOAWAY_GRACE).await;
    };
    tokio::select! {
        biased;
        () = drain.force_closing() => {}
        () = complete => {}
        () = alone, if why != CloseReason::Drain => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metrics::Gauge;
    use tokio::time::Instant;

    use super::*;
    use crate::{Traffic, activity::Activity, connection_slots::ConnectionSlots};

    const GRACE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn requests_keep_a_connection_and_unread_answers_for_30_seconds() {
        let (activity, drain) = (Arc::new(Activity::new(false)), Drain::default());
        activity.authenticate();
        let slot = ConnectionSlots::new(1, Gauge::noop()).take(Arc::clone(&activity)).unwrap();
        let lifetime = Lifetime::new(&Traffic::default(), Arc::clone(&activity), slot);
        let close = CloseSignal::new(drain.clone());
        let end = async |why| {
            let started = Instant::now();
            force_close(why, GRACE, &drain, &close, &lifetime).await;
            started.elapsed().as_secs()
        };
        assert_eq!(end(CloseReason::Evicted).await, 1);
        assert_eq!(end(CloseReason::Drain).await, 5);
        let crossing = activity.begin(true);
        assert_eq!(end(CloseReason::Evicted).await, 31);
        assert_eq!(close.closed(), Some(CloseReason::Evicted), "its streams have ended");
        let _unread = crossing.answered();
        assert_eq!(end(CloseReason::Drain).await, 35);
        assert_eq!(end(CloseReason::Drain).await, 5);
    }
}
