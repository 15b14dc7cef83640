use std::time::Duration;

use rustix::process::Signal;
use weir_client::{Acquired, Client, Reserve, Slot};

use crate::support::{POLICY, Setup, dir, eventually, patient, started};

const EXPORT: [&str; 2] = ["exports", "acme"];

async fn slot(weir: &Client) -> Option<Slot> {
    weir.slot(EXPORT).await.unwrap().into_result().ok()
}

#[tokio::test]
async fn a_slot_is_given_back() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let first = slot(&weir).await.unwrap();
    assert!(!first.is_lost());
    let Acquired::Refused(decision) = weir.slot(EXPORT).await.unwrap() else { panic!("there are two") };
    assert_eq!(decision.retry_after, Some(Duration::from_secs(1)));
    first.release().await.unwrap();
    drop(slot(&weir).await.unwrap());
    eventually("free again", async || slot(&weir).await).await;
}

#[tokio::test]
async fn a_slot_is_extended() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let short = Reserve::new(EXPORT).ttl(Duration::from_secs(3));
    let held = weir.slot(short).await.unwrap().into_result().unwrap();
    // Longer than the slot would last without an extension.
    let until = tokio::time::Instant::now() + Duration::from_millis(3_500);
    while tokio::time::Instant::now() < until {
        assert!(slot(&weir).await.is_none());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!held.is_lost());
    held.release().await.unwrap();
    assert!(slot(&weir).await.is_some());
}

#[tokio::test]
async fn a_slot_outlives_a_call_that_hangs() {
    let dir = dir();
    // The client's deadline is longer than the slot's ttl.
    let (service, weir) = started(&dir);
    let ttl = Duration::from_secs(6);
    let held = weir.slot(Reserve::new(EXPORT).ttl(ttl)).await.unwrap().into_result().unwrap();
    service.freeze();
    // After the first attempt to extend, and during the second.
    tokio::time::sleep(ttl * 5 / 8).await;
    service.signal(Signal::CONT);
    tokio::time::sleep(ttl / 2).await;
    assert!(!held.is_lost());
    assert!(slot(&weir).await.is_none());
}

#[tokio::test]
async fn a_lost_slot_is_noticed() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).socket("weir.sock").start();
    let weir = patient(&service.address).build().unwrap();
    let short = || Reserve::new(EXPORT).ttl(Duration::from_millis(300));
    let held = weir.slot(short()).await.unwrap().into_result().unwrap();
    drop(service);
    // Its memory store is empty, so it does not know the slot.
    let _service = Setup::new(&dir, POLICY).socket("weir.sock").start();
    tokio::time::timeout(crate::support::TIMEOUT, held.lost()).await.unwrap();
    assert!(held.is_lost());
    held.release().await.unwrap_err();
}
