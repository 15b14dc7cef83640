//! Builders of requests, and helpers for sending them.

use futures_util::{Stream, stream};
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt;
use weir::proto::{
    CheckRequest, CheckResponse, Gcra, Limit, LimitSpec, ResetRequest, limit::Algorithm,
    rate_limiter_client::RateLimiterClient,
};

/// Makes a check of one unit in the default domain.
pub fn check<S: ToString>(key: &[S]) -> CheckRequest {
    CheckRequest { key: key.iter().map(ToString::to_string).collect(), ..Default::default() }
}

/// Makes a preview of a key.
pub fn peek<S: ToString>(key: &[S]) -> CheckRequest {
    CheckRequest { cost: Some(0), ..check(key) }
}

/// Makes a reset of a key in the default domain, with the keys below it or without.
pub fn reset<S: ToString>(key: &[S], subtree: bool) -> ResetRequest {
    ResetRequest { key: key.iter().map(ToString::to_string).collect(), subtree, ..Default::default() }
}

/// Adds limits to a check.
pub fn with_limits(request: CheckRequest, limits: Vec<Limit>) -> CheckRequest {
    CheckRequest { limit_spec: Some(LimitSpec { limits, charge: 0 }), ..request }
}

/// Makes a limit with this algorithm on the whole key.
pub fn limit(algorithm: Algorithm) -> Limit {
    Limit { algorithm: Some(algorithm), ..Default::default() }
}

/// Makes a limit of a burst of `burst` + 1 units, then `count` in `seconds`.
pub fn gcra(burst: u64, count: u64, seconds: i64) -> Limit {
    limit(Algorithm::Gcra(Gcra { burst, count, period: Some(seconds_long(seconds)) }))
}

/// Converts seconds to a message.
pub fn seconds_long(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

/// Summarizes an answer: allowed, limit, remaining.
pub fn short(answer: &CheckResponse) -> (bool, u64, u64) {
    (answer.allowed, answer.limit, answer.remaining)
}

/// Returns the status code and, for INVALID_ARGUMENT, the field in its details.
pub fn refusal(status: &Status) -> (Code, Option<String>) {
    let violation = status.get_details_bad_request().and_then(|bad| bad.field_violations.into_iter().next());
    (status.code(), violation.map(|violation| violation.field))
}

/// Returns a sender of checks, and the stream of them, which ends with the sender.
pub fn sent_checks() -> (mpsc::Sender<CheckRequest>, impl Stream<Item = CheckRequest> + Send + 'static) {
    let (send, mut checks) = mpsc::channel(1);
    (send, stream::poll_fn(move |cx| checks.poll_recv(cx)))
}

/// Opens a check stream that stays open, and asserts that its first check is allowed. Returns the sender of further
/// checks and the stream of answers.
pub async fn open_stream(
    client: &mut RateLimiterClient<Channel>,
    first: CheckRequest,
) -> (mpsc::Sender<CheckRequest>, Streaming<CheckResponse>) {
    let (send, checks) = sent_checks();
    send.send(first).await.expect("taken");
    let mut answers = client.check_stream(checks).await.expect("a stream").into_inner();
    assert!(answers.message().await.expect("open").expect("an answer").allowed);
    (send, answers)
}

/// Whether a failed call was certainly not executed, since its connection got a GOAWAY while the call waited. Clients
/// then retry on another connection.
pub fn was_never_sent(status: &Status) -> bool {
    let is_goaway = |error: &h2::Error| error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    let first = std::error::Error::source(status);
    std::iter::successors(first, |error| error.source()).any(|cause| {
        cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
            || cause.downcast_ref::<h2::Error>().is_some_and(is_goaway)
    })
}

/// Returns the contents of all pages. `page` returns one page and the cursor of the next one.
pub async fn all_pages<T>(mut page: impl AsyncFnMut(String) -> (Vec<T>, String)) -> Vec<T> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let (found, next) = page(cursor).await;
        all.extend(found);
        if next.is_empty() {
            return all;
        }
        cursor = next;
    }
}
