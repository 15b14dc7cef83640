use std::time::Duration;

use weir_client::{Acquired, Check, Client, Error, OnExpiry, OnFailure, Reservation, Reserve, Source};

use crate::support::{POLICY, Redis, Setup, Weir, dir, eventually, patient, started};

const USER: [&str; 2] = ["user", "alex"];
const LONG: Duration = Duration::from_secs(60);

async fn held(weir: &Client, units: i64) -> Reservation {
    weir.reserve(Reserve::new(Check::new(USER).cost(units)).ttl(LONG)).await.unwrap().into_result().unwrap()
}

async fn left(weir: &Client) -> u64 {
    weir.check(Check::new(USER).cost(0)).await.unwrap().remaining
}

#[tokio::test]
async fn a_reservation_is_settled_by_its_real_cost() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let reservation = held(&weir, 60).await;
    assert_eq!((reservation.decision().remaining, left(&weir).await), (40, 40));
    assert!(reservation.expires_after() > LONG / 2 && reservation.expires_after() <= LONG);
    let settlement = reservation.commit(20).await.unwrap();
    assert_eq!((settlement.charged, settlement.refunded, settlement.overage), (20, 40, 0));

    let settlement = held(&weir, 10).await.commit(30).await.unwrap();
    assert_eq!((settlement.charged, settlement.refunded, settlement.overage), (30, 0, 20));
    let settlement = held(&weir, 10).await.commit(None).await.unwrap();
    assert_eq!((settlement.charged, left(&weir).await), (10, 40));
    let settlement = held(&weir, 40).await.cancel().await.unwrap();
    assert_eq!((settlement.refunded, left(&weir).await), (40, 40));

    let Acquired::Refused(decision) = weir.reserve(Reserve::new(Check::new(USER).cost(41)).ttl(LONG)).await.unwrap()
    else {
        panic!("it is held");
    };
    assert!(!decision.allowed && decision.retry_after.is_some());
    let error = weir.reserve(USER).await.unwrap_err();
    assert_eq!(error.field(), Some("ttl"), "{error:?}");
}

#[tokio::test]
async fn a_dropped_reservation_is_cancelled() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    drop(held(&weir, 60).await);
    eventually("given back", async || (left(&weir).await == 100).then_some(())).await;
}

#[tokio::test]
async fn a_reservation_is_extended_until_it_ends() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let reserve = Reserve::new(Check::new(USER).cost(60)).ttl(Duration::from_millis(50));
    let released = weir.reserve(reserve.clone().on_expiry(OnExpiry::Release)).await.unwrap().into_result().unwrap();
    eventually("given back", async || (left(&weir).await == 100).then_some(())).await;
    assert!(matches!(released.commit(1).await, Err(Error::NotFound(_))));

    let mut kept = held(&weir, 60).await;
    kept.extend(2 * LONG).await.unwrap();
    assert!(kept.expires_after() > LONG);
    kept.cancel().await.unwrap();
}

#[tokio::test]
async fn without_a_service_on_failure_decides() {
    let dir = dir();
    let service = Weir::start(&dir);
    let weir = patient(&service.address).retries(0).build().unwrap();
    let reservation = held(&weir, 60).await;
    drop(service);
    let failed = reservation.commit(1).await;
    assert!(failed.unwrap_err().is_outage());
    let reserve = |on_failure| Reserve::new(Check::new(USER).on_failure(on_failure)).ttl(LONG);
    let reservation = weir.reserve(reserve(OnFailure::Allow)).await.unwrap().into_result().unwrap();
    assert!(matches!(reservation.decision().source, Source::Fallback(_)));
    let settlement = reservation.commit(7).await.unwrap();
    assert_eq!((settlement.charged, settlement.degraded), (0, true));
    let reservation = weir.reserve(reserve(OnFailure::Allow)).await.unwrap().into_result().unwrap();
    assert!(reservation.cancel().await.unwrap().degraded);
    assert!(matches!(weir.reserve(reserve(OnFailure::Deny)).await, Ok(Acquired::Refused(_))));
    weir.reserve(reserve(OnFailure::Error)).await.unwrap_err();
}

#[tokio::test]
async fn another_replica_settles_after_a_kill() {
    let (dir, redis) = (dir(), Redis::start());
    let start = |name| Setup::new(&dir, POLICY).socket(name).shared(&redis).start();
    let services = [start("0.sock"), start("1.sock")];
    let target = services.each_ref().map(|service| service.address.as_str()).join(",");
    let weir = patient(&target).build().unwrap();
    let reservations = [held(&weir, 30).await, held(&weir, 30).await];
    let [killed, _living] = services;
    drop(killed);
    for reservation in reservations {
        assert_eq!(reservation.commit(10).await.unwrap().charged, 10);
    }
    assert_eq!(left(&weir).await, 80);
}
