use std::time::Duration;

use rustix::process::Signal;
use weir_client::{BreakerSettings, BreakerState, Check, Error, OnFailure, Source};

use crate::support::{POLICY, Setup, TIMEOUT, TRADE, Weir, dir, eventually, patient};

#[tokio::test]
async fn on_failure_decides_outages_alone() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).socket("weir.sock").start();
    let weir = patient(&service.address).on_failure(OnFailure::Allow).retries(0).breaker(NEVER).build().unwrap();
    weir.check(TRADE).await.unwrap();
    drop(service);
    let decision = weir.check(TRADE).await.unwrap();
    assert!(decision.allowed && matches!(&decision.source, Source::Fallback(Error::Unavailable(_))), "{decision:?}");
    assert!(!weir.check(Check::new(TRADE).on_failure(OnFailure::Deny)).await.unwrap().allowed);
    weir.check(Check::new(TRADE).on_failure(OnFailure::Error)).await.unwrap_err();
    assert!(weir.check_batch([TRADE, TRADE]).await.into_iter().all(|result| result.unwrap().allowed));
    assert!(weir.check_all([TRADE]).await.unwrap().allowed);
    weir.reset(TRADE).await.unwrap_err();

    let _service = Setup::new(&dir, POLICY).socket("weir.sock").start();
    eventually("decided again", async || (weir.check(TRADE).await.ok()?.source == Source::Service).then_some(())).await;
    weir.check(Check::new(TRADE).domain("unknown")).await.unwrap_err();
    assert!(weir.check_batch([Check::new([""])]).await[0].is_err());
}

const NEVER: BreakerSettings = BreakerSettings { failures: 0, open_for: Duration::ZERO };

#[tokio::test]
async fn the_circuit_breaker_opens_and_closes() {
    let dir = dir();
    let service = Weir::start(&dir);
    // The breaker stays open for longer than a busy machine needs between two calls.
    let breaker = BreakerSettings { open_for: Duration::from_secs(3), ..BreakerSettings::default() };
    let weir = patient(&service.address).breaker(breaker).build().unwrap();
    weir.check(TRADE).await.unwrap();
    service.freeze();
    for _ in 0..5 {
        let error = weir.check(Check::new(TRADE).deadline(Duration::from_millis(20))).await.unwrap_err();
        assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
    }
    assert_eq!(weir.breaker_state(), BreakerState::Open);
    assert_eq!(weir.check(TRADE).await, Err(Error::CircuitOpen));
    assert!(weir.check(Check::new(TRADE).on_failure(OnFailure::Allow)).await.unwrap().allowed);
    service.signal(Signal::CONT);
    eventually("closed again", async || weir.check(TRADE).await.ok()).await;
    assert_eq!(weir.breaker_state(), BreakerState::Closed);
}

#[tokio::test]
async fn a_service_that_starts_late_is_found() {
    let dir = dir();
    let setup = Setup::new(&dir, POLICY).socket("weir.sock");
    let target = format!("unix:{}", dir.path().join("weir.sock").display());
    let weir = patient(&target).retries(0).breaker(NEVER).build().unwrap();
    weir.check(TRADE).await.unwrap_err();
    let _service = setup.start();
    eventually("an answer", async || weir.check(TRADE).await.ok()).await;
}

#[tokio::test]
async fn a_name_is_resolved() {
    let dir = dir();
    let service = Weir::start(&dir);
    let port = service.address.rsplit_once(':').unwrap().1;
    // `localhost` may also resolve to ::1, where no server listens.
    let weir = patient(&format!("dns:///localhost:{port}")).breaker(NEVER).build().unwrap();
    tokio::time::timeout(TIMEOUT, eventually("an answer", async || weir.check(TRADE).await.ok())).await.unwrap();
}
