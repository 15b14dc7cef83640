use std::time::Duration;

use weir_client::{
    Check, Error, Reset, Source, duration,
    proto::{FixedWindow, Gcra, Limit, SlidingLog},
};

use crate::support::{TRADE, dir, started};

#[tokio::test]
async fn a_check_is_decided_by_the_policy() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let first = weir.check(TRADE).await.unwrap();
    assert_eq!((first.allowed, first.limit, first.remaining, &first.source), (true, 3, 2, &Source::Service));
    assert!(first.levels.is_empty() && first.binding().is_none() && !first.degraded && !first.repeated_request);

    let last = weir.check(Check::new(TRADE).cost(2).levels()).await.unwrap();
    let names: Vec<_> = last.levels.iter().map(|level| (level.name.as_str(), level.remaining)).collect();
    assert_eq!((names, last.binding().unwrap().depth), (vec![("per-user", 97), ("trades", 0)], 3));
    assert!(last.next_after.unwrap() > Duration::from_secs(86_000));

    let refused = weir.check(TRADE).await.unwrap();
    assert!(!refused.allowed && !refused.never && refused.retry_after.unwrap() > Duration::from_secs(86_000));
    let never = weir.check(Check::new(TRADE).cost(4)).await.unwrap();
    assert!(!never.allowed && never.never && never.retry_after.is_none());
}

#[tokio::test]
async fn previews_dry_runs_and_refunds() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let remaining = async |check: Check| weir.check(check).await.unwrap().remaining;
    assert_eq!(remaining(Check::new(TRADE).cost(2).dry_run()).await, 1);
    assert_eq!(remaining(Check::new(TRADE).cost(0)).await, 3);
    assert_eq!(remaining(Check::new(TRADE).cost(3)).await, 0);
    assert_eq!(remaining(Check::new(TRADE).cost(-1)).await, 1);
    assert_eq!(remaining(Check::new(["user", "berta"]).factor(0.5).cost(0)).await, 199);
}

#[tokio::test]
async fn a_request_id_is_charged_once() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let check = Check::new(TRADE).request_id("5f0c1a5e");
    for repeated in [false, true] {
        let decision = weir.check(check.clone()).await.unwrap();
        assert_eq!((decision.remaining, decision.repeated_request), (2, repeated));
    }
}

#[tokio::test]
async fn limits_of_the_request() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let day = duration(Duration::from_secs(86_400));
    let limits: [Limit; 3] = [
        Limit::from(Gcra { burst: 4, count: 1, period: day }).named("here"),
        Limit::from(FixedWindow { count: 2, period: day, ..FixedWindow::default() }).at_depth(1),
        Limit::from(SlidingLog { count: 1, period: day, ..SlidingLog::default() }).in_shadow(),
    ];
    let decision = weir.check(Check::new(["ip", "192.0.2.1"]).limits(limits).levels().cost(2)).await.unwrap();
    assert!(decision.allowed);
    let levels: Vec<_> =
        decision.levels.iter().map(|level| (level.depth, level.limit, level.shadow, level.allowed)).collect();
    assert_eq!(levels, [(1, 2, false, true), (2, 5, false, true), (2, 1, true, false)]);
    assert_eq!(decision.levels[1].name, "here");
}

#[tokio::test]
async fn a_batch_is_answered_in_order() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let checks = [Check::new(TRADE).cost(2), Check::new([""]), Check::new(TRADE).cost(2), Check::new(TRADE)];
    let results = weir.check_batch(checks).await;
    let allowed: Vec<_> = results.iter().map(|result| result.as_ref().map(|decision| decision.allowed).ok()).collect();
    assert_eq!(allowed, [Some(true), None, Some(false), Some(true)]);
    assert_eq!(results[1].as_ref().unwrap_err().field(), Some("key[0]"));
    assert!(weir.check_batch(Vec::<Check>::new()).await.is_empty());
}

#[tokio::test]
async fn checks_together_are_all_charged_or_none() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let (alex, berta) = (Check::new(TRADE).cost(2), Check::new(["user", "berta", "trade"]));
    assert!(weir.check_all([alex.clone(), berta.clone()]).await.unwrap().allowed);
    let refused = weir.check_all([berta.clone(), alex]).await.unwrap();
    let each: Vec<_> = refused.decisions.iter().map(|decision| decision.allowed).collect();
    assert_eq!((refused.allowed, each), (false, vec![true, false]));
    assert!(refused.retry_after().unwrap() > Duration::from_secs(86_000));
    assert_eq!(weir.check(berta.cost(0)).await.unwrap().remaining, 2);
    assert!(matches!(weir.check_all(Vec::<Check>::new()).await, Err(Error::InvalidRequest { .. })));
}

#[tokio::test]
async fn resets() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    weir.check(Check::new(TRADE).cost(3)).await.unwrap();
    assert!(!weir.reset(["user", "berta"]).await.unwrap());
    assert!(weir.reset(Reset::new(["user", "alex"]).subtree()).await.unwrap());
    assert!(!weir.reset(Reset::new(["user", "alex"]).subtree()).await.unwrap());
    assert_eq!(weir.check(TRADE).await.unwrap().remaining, 2);
    // The key itself has no state, but one below it has.
    assert!(weir.reset(Reset::new(["user"]).subtree()).await.unwrap());
}
