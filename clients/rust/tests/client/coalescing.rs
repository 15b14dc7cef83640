use std::time::Duration;

use tokio::task::JoinSet;
use weir_client::{Check, Error};

use crate::support::{POLICY, Setup, TRADE, dir, patient};

/// More than a stream has in flight.
const MANY: usize = 3_000;

#[tokio::test]
async fn coalesced_checks_are_answered_as_others() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).start();
    let (unary, coalesced) = (service.client(), patient(&service.address).coalesce(true).build().unwrap());
    for check in [Check::new(TRADE).cost(0).levels(), Check::new(["user", "berta"]).dry_run(), Check::new(["other"])] {
        let mut answers = [unary.check(check.clone()).await.unwrap(), coalesced.check(check).await.unwrap()];
        // Time goes on between the two.
        answers.iter_mut().for_each(|answer| answer.reset_after = Duration::ZERO);
        assert_eq!(answers[0], answers[1]);
    }
    for check in [Check::new([""]), Check::new(TRADE).domain("unknown"), Check::new(["exports", "acme"])] {
        let (one, other) = (unary.check(check.clone()).await, coalesced.check(check).await);
        assert_eq!(one.unwrap_err(), other.unwrap_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_gets_its_own_answer() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).start();
    let weir = patient(&service.address).coalesce(true).build().unwrap();
    let mut callers = JoinSet::new();
    for number in 0..MANY {
        let weir = weir.clone();
        callers.spawn(async move {
            let units = i64::try_from(number % 100 + 1).unwrap();
            let user = ["user".to_owned(), number.to_string()];
            let decision = weir.check(Check::new(user).cost(units)).await.unwrap();
            assert_eq!(decision.remaining, 100 - u64::try_from(units).unwrap());
        });
    }
    while let Some(result) = callers.join_next().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn an_entry_has_its_own_deadline() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).start();
    let weir = patient(&service.address).coalesce(true).build().unwrap();
    weir.check(TRADE).await.unwrap();
    service.freeze();
    let late = weir.check(Check::new(TRADE).deadline(Duration::from_millis(50)));
    assert!(matches!(late.await, Err(Error::DeadlineExceeded(_))));
    service.signal(rustix::process::Signal::CONT);
    // The answer to the one before it does not become that of the next one.
    assert_eq!(weir.check(Check::new(["user", "berta"]).cost(0)).await.unwrap().remaining, 100);
}
