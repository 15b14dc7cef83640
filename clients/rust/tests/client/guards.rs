use std::time::{Duration, Instant};

use tokio::time::timeout;
use weir_client::{Check, OnFailure, Refusal, Verdict, duration, proto::LeakyQueue};

use crate::support::{TRADE, Weir, dir, eventually, patient, started};

fn refused(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Refuse(refusal) => refusal,
        Verdict::Pass(headers) => panic!("it passes: {headers:?}"),
    }
}

fn passed(verdict: Verdict) -> http::HeaderMap {
    match verdict {
        Verdict::Pass(headers) => headers,
        Verdict::Refuse(refusal) => panic!("it is refused: {refusal:?}"),
    }
}

#[tokio::test]
async fn decisions_become_responses() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let headers = passed(weir.guard(TRADE).await);
    assert_eq!(
        (&headers["ratelimit-policy"], &headers["ratelimit"]),
        (&"\"trades\";q=3".parse().unwrap(), &"\"trades\";r=2".parse().unwrap())
    );
    passed(weir.guard(Check::new(TRADE).cost(2)).await);
    let refusal = refused(weir.guard(TRADE).await);
    assert_eq!(
        (refusal.status.as_u16(), refusal.headers["content-type"].to_str().unwrap()),
        (429, "application/problem+json")
    );
    let seconds: u64 = refusal.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((86_000..=86_400).contains(&seconds) && refusal.retry_after.unwrap().as_secs() < seconds);
    assert!(refusal.headers["ratelimit"].to_str().unwrap().starts_with("\"trades\";r=0;t=86"));
    serde_json::from_str::<serde_json::Value>(refusal.body).unwrap();
    assert!(refused(weir.guard(Check::new(TRADE).cost(4)).await).headers.get("retry-after").is_none());
    assert!(passed(weir.guard(["unlimited"]).await).is_empty());
}

/// A check of a key that lets a request pass every so often; others wait.
fn queued(period: Duration) -> Check {
    let limit = LeakyQueue { count: 1, period: duration(period), burst: 5, ..LeakyQueue::default() };
    Check::new(["queue"]).limits([limit]).max_wait(Duration::from_secs(3_600))
}

#[tokio::test]
async fn a_request_passes_after_its_wait() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let queued = queued(Duration::from_millis(500));
    // On a machine that is slower than the queue the next request waits.
    eventually("a request that waits", async || {
        let started = Instant::now();
        passed(weir.guard(&queued).await);
        Some(()).filter(|()| started.elapsed() >= Duration::from_millis(250))
    })
    .await;
}

#[tokio::test]
async fn a_request_that_ends_while_it_waits_does_not_pass() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let queued = queued(Duration::from_secs(3_600));
    passed(weir.guard(&queued).await);
    timeout(Duration::from_millis(100), weir.guard(&queued)).await.unwrap_err();
}

#[tokio::test]
async fn users_cannot_make_a_check_invalid() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    for user in [String::new(), "ü".repeat(1_500)] {
        assert!(!passed(weir.guard(["user", &user]).await).is_empty());
    }
}

#[tokio::test]
async fn without_a_decision_it_fails_open_or_closed() {
    let dir = dir();
    let service = Weir::start(&dir);
    let weir = patient(&service.address).retries(0).build().unwrap();
    let login = Check::new(["user", "alex", "login"]).on_failure(OnFailure::Deny);
    passed(weir.guard(login.clone()).await);
    // A configuration error is not the user's fault.
    assert!(passed(weir.guard(Check::new(TRADE).domain("unknown")).await).is_empty());
    let refusal = refused(weir.guard(login.clone().domain("unknown")).await);
    assert_eq!(refusal.status.as_u16(), 503);
    drop(service);
    assert!(passed(weir.guard(TRADE).await).is_empty());
    let refusal = refused(weir.guard(login).await);
    assert_eq!((refusal.status.as_u16(), refusal.headers["retry-after"].to_str().unwrap()), (503, "1"));
}
